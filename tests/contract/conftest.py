"""Registries of a test's own, on both databases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from rewind.control import database
from rewind.control.database import transaction
from tests.support import postgres
from tests.support.fakes import installation

_numbers = itertools.count(1)
DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server, one for the session: tests use databases of their own."""
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_registry(postgres_server: str) -> str:
    """An empty registry that no test writes to: each gets a copy, which is made faster than the tables."""
    url = postgres.another(postgres_server, "registry")
    database.upgrade(url)
    return url


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty registry."""
    if request.param == "sqlite":
        yield installation(tmp_path / "home").registry_url
    else:
        made = postgres.another(
            request.getfixturevalue("postgres_registry"), f"copy{next(_numbers)}", template="registry"
        )
        yield made
        postgres.drop(made)


@pytest.fixture(params=DATABASES)
def bare_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without any table; on SQLite of a file that is not there."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/not/there/yet/registry.db"
    else:
        made = postgres.another(request.getfixturevalue("postgres_server"), f"bare{next(_numbers)}")
        yield made
        postgres.drop(made)


@pytest.fixture
def registry(url: str) -> Iterator[Connection]:
    """A transaction in an empty registry."""
    with transaction(url) as connection:
        yield connection
