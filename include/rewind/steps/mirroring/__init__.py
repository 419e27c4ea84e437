"""The mirror of a topic: written, looked after, and proven."""
