"""Registries of a test's own, on both databases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from rewind.registry import database
from rewind.registry.database import writing
from tests.support import postgres
from tests.support import registry as registry_of_tests
from tests.support.fakes import installation

_numbers = itertools.count(1)
DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server, one for the session: tests use databases of their own."""
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str) -> str:
    """Name of a database that holds an empty registry, and that no test uses: others are copied from it."""
    url = postgres.another(postgres_server, "empty")
    database.upgrade(url)
    return "empty"


@pytest.fixture(scope="session")
def postgres_registry(postgres_server: str, postgres_template: str) -> str:
    """An empty registry on the server."""
    return postgres.another(postgres_server, "registry", template=postgres_template)


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty registry. Its tables stay as they are; a test that changes them asks for `own_url`."""
    if request.param == "sqlite":
        yield installation(tmp_path / "home").registry_url
    else:
        made = request.getfixturevalue("postgres_registry")
        yield made
        # A database for each test would take ten times as long.
        registry_of_tests.clear(made)


@pytest.fixture(params=DATABASES)
def own_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty registry that nobody else uses."""
    if request.param == "sqlite":
        yield installation(tmp_path / "home").registry_url
    else:
        template, server = map(request.getfixturevalue, ("postgres_template", "postgres_server"))
        made = postgres.another(server, f"copy{next(_numbers)}", template=template)
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
    with writing(url) as connection:
        yield connection
