"""The commands of `python -m rewind`: each parses, reads a view or asks Airflow to run something, and prints."""
