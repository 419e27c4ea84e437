"""Jobs whose answers depend on more than their records, and the columns in which a nightly replay finds it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.scenarios.nightly_life import DAY, FIRST, day, evidence, replay, visit
from tests.support.workshop import Workshop

RECORDS = 60
WINDOWS = 8


@dataclass(frozen=True)
class Wrong:
    """A wrong job.

    Attributes:
        like: The pipeline that it is made of.
        edits: Texts of its logic and what stands there instead; `{place}` is a file beside it.
        columns: What its drift is found in.
        lives: Makes the live job see its records.
    """

    like: str
    edits: tuple[tuple[str, str], ...]
    columns: list[str]
    lives: Callable[[Workshop, str, Path], None]


def _seen_at_once(shop: Workshop, live: str, place: Path) -> None:
    day(shop, 0, RECORDS)
    shop.caught_up(live)
    # Read by the replay; live has answered already.
    _kinds(place, "changed")


def _one_by_one(shop: Workshop, live: str, _place: Path) -> None:
    """Write two records of each window, the one of the higher partition first, each in a batch of its own.

    A scan begins with the larger files, which are those of partition 0: the replay sees its records first.
    """
    long = secrets.token_hex(4_000)
    for window in range(WINDOWS):
        for partition in (1, 0):
            at = FIRST + window * timedelta(minutes=10) + timedelta(minutes=1 - partition)
            more = {} if partition else {"note": long}
            shop.produce(visit(10 * window + partition, at, **more), partition=partition, at=lambda _, at=at: at)
            shop.caught_up(live)


def _kinds(place: Path, kind: str) -> None:
    place.write_text("\n".join(json.dumps({"page": f"p{n}", "kind": f"{kind}-{n}"}) for n in range(5)))


# What Python finds while a plan is made is a value in it, of which the plan does not say where it came from.
STARTED = """STARTED = datetime.now(UTC).isoformat()


def transform("""
IMPORTS = "from __future__ import annotations\n"
KINDS = """kinds = [json.loads(line) for line in Path("{place}").read_text().splitlines()]
    named = F.create_map(*(F.lit(kind[name]) for kind in kinds for name in ("page", "kind")))
    return visits.select("""

JOBS = {
    "clock": Wrong(
        "visits_converter",
        (
            (IMPORTS, IMPORTS + "\nfrom datetime import UTC, datetime\n"),
            ("def transform(", STARTED),
            ('F.col("_src"),', 'F.lit(STARTED).alias("seen_at"), "_src",'),
        ),
        ["seen_at"],
        _seen_at_once,
    ),
    "order": Wrong(
        "visits_window_counter",
        (
            # Of equal ones the last to come counts.
            ('.alias("count"),', '.alias("count"), F.max_by("event_id", F.lit(1)).alias("one_event"),'),
            ('"count", "_src"', '"count", "one_event", "_src"'),
        ),
        ["one_event"],
        _one_by_one,
    ),
    "table": Wrong(
        "visits_converter",
        (
            (IMPORTS, IMPORTS + "\nimport json\nfrom pathlib import Path\n"),
            ("return visits.select(", KINDS),
            ('F.col("_src"),', 'named[F.col("page")].alias("kind"), "_src",'),
        ),
        ["kind"],
        _seen_at_once,
    ),
}


def check(workshop: Callable[..., Workshop], folder: Path, name: str) -> dict[str, Any]:
    """Let a wrong job live a day, replay its night, and return where the drift was found."""
    wrong, place = JOBS[name], folder / "kinds.json"
    shop = workshop(f"wrong_{name}", 2, like=wrong.like)
    for old, new in wrong.edits:
        shop.edit_logic(old, new.replace("{place}", str(place)))
    _kinds(place, "first")
    live = shop.deploy()
    for owner in (live, shop.mirror):
        shop.start(owner)
    wrong.lives(shop, live, place)
    # What closes the windows; a record of the night after.
    shop.produce(visit(9_999, FIRST + DAY), at=lambda _: FIRST + DAY)
    for owner in (live, shop.mirror):
        shop.caught_up(owner)
    night = replay(shop, live, 0)
    assert night.state == "drifted", (night.state, night.reason, night.counts)
    assert set(night.fields) == {"changed"}, night.fields
    columns = sorted(night.fields["changed"])
    body = evidence(shop, night)
    assert columns == wrong.columns == sorted(body["fields"]["changed"])
    assert body["sample"]
    return {"differ_in": dict(night.fields["changed"]), "of": night.counts["rows"]}
