"""Airflow's REST API, over the network and within its own process."""
