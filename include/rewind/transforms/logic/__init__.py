"""What a pipeline's logic may be, and the columns that it gives."""
