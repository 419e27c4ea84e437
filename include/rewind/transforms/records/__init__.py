"""Records as they stand in topics, outputs and mirrors."""
