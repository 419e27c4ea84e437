"""Rows and states of two jobs, held against each other."""
