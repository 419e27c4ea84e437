"""The stream of a generation, and the loop that it shares with mirrors."""
