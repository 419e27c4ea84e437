"""The commands of `python -m rewind`: each parses, calls one function of `control` or Airflow's REST API, prints."""
