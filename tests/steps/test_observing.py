"""New logic that differs only in what comes after the switch: it is told by reading on, and rolled back."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rewind.declared import forms
from rewind.registry import generations, observation, rewinds
from rewind.runtime import evidence
from tests.scenarios.crashes import visit
from tests.scenarios.observed import LATE, PLANTED
from tests.support import outside
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(1_200)]

REWIND = "rw-watched"


def both_read_all(shop: Workshop, *numbers: int) -> None:
    """Produce visits and wait until live and candidate have written what they make of them."""
    shop.produce(*(visit(n) for n in numbers))
    for job in ("watched-g1", "watched-g2"):
        shop.caught_up(job)


def approved(shop: Workshop) -> None:
    """Deploy the pipeline, and carry a rewind with the planted logic through to its approval."""
    for p in range(2):
        shop.produce(*(visit(n) for n in range(p, 300, 2)), partition=p)
    for owner in (shop.deploy(), shop.mirror):
        shop.start(owner)
        shop.caught_up(owner)
    shop.stop(shop.mirror)
    shop.edit_logic('F.col("page").alias', PLANTED)
    shop.planned(REWIND)
    for step in ("spin_up", "backfill"):
        shop.step(step, REWIND)
    shop.start("watched-g2")
    shop.caught_up("watched-g2")
    shop.step("validate", REWIND)
    shop.approve(REWIND)


def evidence_tells_the_expectations(shop: Workshop) -> None:
    """See that the shipped ones were asked of all rows, and that their pages lie beside the verdict's."""
    folder = evidence.folder_of(shop.settings, REWIND)
    told = json.loads((folder / "verdict-1.json").read_text())["expectations"]
    assert [(answer["column"], answer["success"], answer["counted"]["element_count"]) for answer in told] == [
        ("event_identifier", True, 300),
        ("visit_identifier", True, 300),
        ("event_time", True, 300),
    ]
    assert "expect_column_values_to_not_be_null" in (folder / "verdict-1.html").read_text()
    assert (folder / "data-docs-1" / "index.html").is_file()


def evidence_has_the_keys_that_others_read(shop: Workshop, *names: str) -> None:
    """See that each file of a rewind's evidence has the keys it always had."""
    folder = evidence.folder_of(shop.settings, REWIND)
    bodies = {name: json.loads((folder / f"{name}.json").read_text()) for name in names}
    found = {line for name, body in bodies.items() for line in outside.key_lines("evidence", body, at=name)}
    assert outside.changed("evidence", found) == ([], [])


def test_what_differs_since_the_switch_is_found_by_reading_on(workshop: Callable[..., Workshop]) -> None:
    shop = workshop("watched", 2, expectations=True)
    approved(shop)
    evidence_tells_the_expectations(shop)
    both_read_all(shop, *range(300, 310))
    assert "rechecked 10 rows since the verdict" in shop.step("cut_over", REWIND).output

    both_read_all(shop, *range(LATE, LATE + 7), *range(310, 315))
    told = shop.step("recheck", REWIND).output
    assert "12 rows compared since the switch, DIFFERENCES: 7 changed" in told
    both_read_all(shop, 400)
    shop.step("recheck", REWIND)
    evidence_has_the_keys_that_others_read(shop, "verdict-1", "observed-1")
    with shop.registry() as connection:
        observed = observation.read(connection, REWIND)
        frontier = observation.frontier(connection, REWIND)
    assert (observed.looks, observed.rows, observed.differences) == (2, 13, {"changed": 7})
    assert [row["candidate"]["key"] for row in observed.sample] == [str(n) for n in range(LATE, LATE + 7)]
    # All that was written has been compared: the next comparison reads nothing of it.
    assert frontier is not None
    assert frontier.ceiling == shop.end()
    assert sum(sum(ends.values()) for ends in frontier.unread.values()) == 2 * 323

    # The way back that the observation would start, twice, as the same rollback.
    back = ("--rollback-id", forms.rollback_id("rollback_watched", f"observed.{REWIND}"), "--pipeline", "watched")
    asked = json.dumps({"dry_run": False, "to": "watched-g1", "reason": observed.told()})
    for _ in range(2):
        shop.run("rollback", *back, "--request", asked)
    with shop.registry() as connection:
        live, epoch = generations.live(connection, "watched") or (None, 0)
        assert rewinds.read(connection, REWIND).state == "rolled_back"
    assert live is not None
    assert (live.job_id, epoch) == ("watched-g1", 3)
