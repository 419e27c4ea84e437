// Prints as JSON what Compose makes of the file and the folder's `.env`: `go run . <folder>`.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	folder := os.Args[1]
	options, err := cli.NewProjectOptions(
		[]string{filepath.Join(folder, "docker-compose.yaml")},
		cli.WithWorkingDirectory(folder),
		cli.WithEnvFiles(),
		cli.WithDotEnv,
		cli.WithDefaultProfiles(),
		cli.WithResolvedPaths(false),
	)
	if err == nil {
		project, loadErr := options.LoadProject(context.Background())
		if loadErr == nil {
			text, jsonErr := project.MarshalJSON()
			fmt.Println(string(text))
			err = jsonErr
		} else {
			err = loadErr
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
