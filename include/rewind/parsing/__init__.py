"""When Airflow parses the DAG files: the one layer that is loaded into Airflow's own processes (ADR 0030)."""
