"""Airflow's side of Rewind: operators and sensors that the DAG files wire together.

Everything here reads its state from the registry, never from XCom or task states, and imports nothing of
Spark: a DAG file is parsed many times a minute, and each poke of a sensor imports it anew.
"""
