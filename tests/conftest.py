"""Fixtures of all tiers: the jars of the checkout, a real broker, settings in a folder of the test's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rewind.core.settings import Settings, from_environment
from rewind.local import broker as local_broker
from rewind.local.broker import Broker
from rewind.registry import database
from rewind.runtime.drivers import jvm, supervise
from tests.support.workshop import Workshop

pytest_plugins = [
    "tests.support.shows",
    "tests.support.spark_session",
    "tests.support.tiers",
    "tests.support.short_transactions",
]

PROJECT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def project() -> Path:
    """The checkout."""
    return PROJECT


@pytest.fixture(scope="session")
def jars() -> Path:
    """The folder that set-up filled. What is missing there fails the test: it must not be skipped."""
    home = Path(os.environ.get("REWIND_HOME") or PROJECT / ".rewind")
    folder = Path(os.environ.get("REWIND_JARS") or home / "jars").resolve()
    jvm.java_home()
    jvm.spark_class_path(folder)
    return folder


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Iterator[Broker]:
    """A real broker, one for the session: tests use topics of their own."""
    running = local_broker.start(tmp_path_factory.mktemp("broker"), jars=jars)
    yield running
    running.kill()


@pytest.fixture
def make_settings(tmp_path: Path, jars: Path) -> Callable[..., Settings]:
    """Build settings in the test's folder: `make_settings(bootstrap, REWIND_PIPELINES=...)`."""

    def make(bootstrap: str = "127.0.0.1:1", **chosen: str) -> Settings:
        places = {
            "REWIND_HOME": str(tmp_path / "home"),
            "REWIND_KAFKA_BOOTSTRAP": bootstrap,
            "REWIND_JARS": str(jars),
            "REWIND_JOBS": str(PROJECT / "jobs"),
            "REWIND_PIPELINES": str(PROJECT / "include" / "pipelines"),
        }
        settings = from_environment(places | chosen)
        settings.data.mkdir(parents=True, exist_ok=True)
        return settings

    return make


@pytest.fixture
def settings(make_settings: Callable[..., Settings], broker: Broker) -> Settings:
    """Settings in the test's folder, against the session's broker."""
    return make_settings(broker.bootstrap)


@pytest.fixture
def workshop(
    make_settings: Callable[..., Settings], broker: Broker, tmp_path: Path
) -> Iterator[Callable[..., Workshop]]:
    """Make pipelines of the test's own: `workshop("name", partitions=3)`; their drivers end with the test."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    settings = make_settings(broker.bootstrap, REWIND_PIPELINES=str(folder))

    def make(name: str, partitions: int = 3, **declared: Any) -> Workshop:
        return Workshop(settings, name, partitions, **declared)

    yield make
    database.upgrade(settings.registry_url)
    supervise.stop_all(settings, timeout=20)
