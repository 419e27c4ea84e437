"""Nightly replays: whether the live job would still give the answers that it gave."""
