"""`completion`: a script by which a shell completes commands, options and their choices.

It is made from the parser and holds all words, so that a press of Tab starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

BASH, ZSH = "bash", "zsh"
ZSH_HEAD = """autoload -Uz bashcompinit && bashcompinit
# Else an alias is replaced by what it stands for before it is completed.
setopt complete_aliases"""
SCRIPT = """_rewind() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" path="" words="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$path/$word" in
      {paths}) path="$path/$word" ;;
    esac
  done
  case "$path" in
{words}
  esac
  case "$path $previous" in
{choices}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _rewind rewind"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("completion", help='a script for the shell: eval "$(rewind completion bash)"')
    parser.add_argument("shell", choices=[BASH, ZSH])
    parser.set_defaults(func=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    from rewind.cli import main

    made = script(main.parser())
    print(f"{ZSH_HEAD}\n{made}" if arguments.shell == ZSH else made)
    return 0


def script(parser: argparse.ArgumentParser) -> str:
    """Return the bash script that completes what a parser takes, for the name `rewind`."""
    known = dict(_parsers(parser, ""))
    words = [f'    "{path}") words="{" ".join(_words(one))}" ;;' for path, one in known.items()]
    choices = [
        f'    "{path} {flag}") words="{" ".join(map(str, action.choices or ()))}" ;;'
        for path, one in known.items()
        for action in _actions(one)
        if action.choices and action.option_strings
        for flag in action.option_strings
    ]
    paths = "|".join(f'"{path}"' for path in known if path)
    return SCRIPT.format(paths=paths, words="\n".join(words), choices="\n".join(choices))


def _parsers(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield path, parser
    for name, below in _commands(parser).items():
        yield from _parsers(below, f"{path}/{name}")


def _words(parser: argparse.ArgumentParser) -> list[str]:
    places = [
        str(choice) for action in _actions(parser) if not action.option_strings for choice in action.choices or ()
    ]
    return places + [flag for action in _actions(parser) for flag in action.option_strings if flag.startswith("--")]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action.choices for action in _actions(parser) if isinstance(action.choices, dict)]
    return dict(found[0]) if found else {}


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    # argparse has no public list of what it was told.
    return parser._actions  # noqa: SLF001
