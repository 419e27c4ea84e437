"""Visits of a website, with their columns renamed."""
