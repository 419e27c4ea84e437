"""A candidate's history, from the mirror to its output or its state."""
