"""What two jobs wrote and kept, compared."""
