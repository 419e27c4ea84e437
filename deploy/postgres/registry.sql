-- Airflow's database is made by the image; the registry has one of its own, since both keep an alembic_version.
CREATE DATABASE rewind;
