"""Spark-free, Airflow-free rules of Rewind: values and pure functions over them."""
