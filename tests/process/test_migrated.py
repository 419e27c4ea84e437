"""A generation that was frozen before a migration of the registry restarts after it, or is refused with the cure."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rewind.core.errors import RefusedError
from rewind.registry import database, schema, streams
from rewind.runtime.drivers import supervise
from tests.support.migrated import Release
from tests.support.workshop import Workshop, wait_for

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(600)]

VISIT = {"event_id": "click-1", "visit_id": 1, "event_time": "2025-09-04T07:00:00", "page": "home"}


def test_frozen_before_a_migration(workshop: Callable[..., Workshop], tmp_path: Path) -> None:
    shop = workshop("older", 1)
    live = shop.deploy()
    shop.start(live)
    answered(shop, 1)

    later = Release(tmp_path / "later", shop)
    later.migrate("8001")
    killed(shop, live)
    wait_for("its successor", lambda: later.look(live) == supervise.RUNNING)
    answered(shop, 2)
    first, second = shop.read("older-out-g1")
    assert (second.value, second.headers["rewind-token"]) == (first.value, "2")

    later.migrate("8002", schema.PROTOCOL + 1)
    killed(shop, live)
    wait_for("the refusal", lambda: later.look(live) == supervise.WAITING and refusal(shop, live) is not None)
    cure = "Rewind the pipeline with same_code, so that it gets a bundle of the installed release"
    told = f"registry: speaks protocol {schema.PROTOCOL + 1}, this bundle {schema.PROTOCOL}. {cure}"
    assert told in str(refusal(shop, live))
    assert shop.holder(live) is None
    assert len(shop.read("older-out-g1")) == 2

    with pytest.raises(RefusedError, match=r"^registry: was migrated by a newer release .*8002.*restore a backup"):
        database.upgrade(shop.settings.registry_url)
    later.forget()


def answered(shop: Workshop, number: int) -> None:
    shop.produce((b"k", json.dumps(VISIT).encode()))
    wait_for(f"answer {number}", lambda: len(shop.read("older-out-g1")) == number)


def killed(shop: Workshop, owner: str) -> None:
    holder = shop.holder(owner)
    assert holder is not None
    os.killpg(holder.group, signal.SIGKILL)
    wait_for("the driver's end", lambda: shop.holder(owner) is None)


def refusal(shop: Workshop, owner: str) -> str | None:
    """Return how the driver last failed, unless that was the kill."""
    with shop.registry() as connection:
        found = streams.needed(connection, owner)
    return found.last_failure if found.last_failure and "protocol" in found.last_failure else None
