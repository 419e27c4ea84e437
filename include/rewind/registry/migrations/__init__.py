"""Alembic migrations of the registry. They only add."""
