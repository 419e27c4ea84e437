"""The stack on one machine: broker, Airflow, and the demo that runs on them."""
