"""The page: the view of the state as JSON over HTTP, and the files that a browser shows it with."""
