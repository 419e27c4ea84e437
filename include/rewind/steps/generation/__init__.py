"""What a generation is made of: what it owns, its logic and its query."""
