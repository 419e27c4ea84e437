"""Declared pipelines, a folder each."""
