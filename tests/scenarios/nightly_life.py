"""Nights of a pipeline, replayed by the product's own submit, without Airflow."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kafka import KafkaProducer

from rewind.core import nights as rules
from rewind.core.nights import Night
from rewind.registry import nightly_replays
from rewind.registry.nightly_replays import Replayed
from rewind.runtime import tables as folders
from rewind.runtime.drivers import supervise
from tests.support.workshop import Ended, Record, Workshop

FIRST = datetime(2025, 9, 4, tzinfo=UTC)
"""First instant of the first night."""
DAY = timedelta(days=1)


def visit(n: int, at: datetime, **more: Any) -> tuple[bytes, bytes]:
    body = {
        "event_id": f"click-{n}",
        "visit_id": n,
        "event_time": at.strftime("%Y-%m-%dT%H:%M:%S"),
        "page": f"p{n % 7}",
    }
    return str(n % 13).encode(), json.dumps({**body, **more}).encode()


def day(shop: Workshop, night: int, records: int, partition: int = 0) -> None:
    """Write the records of a night, spread over it."""
    at = [FIRST + night * DAY + n * DAY / records for n in range(records)]
    shop.produce(*(visit(1000 * night + n, at[n]) for n in range(records)), partition=partition, at=lambda n: at[n])


def submitted(
    shop: Workshop,
    job_id: str,
    night: int,
    *,
    sample: Mapping[str, Any] | None = None,
    missed: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Submit the replay of a night by the live job's frozen code."""
    with shop.registry() as connection:
        generation = nightly_replays.generations.read(connection, job_id)
    code = supervise.frozen_bundle(shop.settings, job_id, generation.bundle)
    gone = [[(FIRST + n * DAY).isoformat(), (FIRST + (n + 1) * DAY).isoformat()] for n in missed]
    arguments = [
        *(
            "--job-id",
            job_id,
            "--sample",
            json.dumps(sample or {}),
            "--missed",
            json.dumps(gone),
            "--run-id",
            "by hand",
        ),
        *("--start", (FIRST + night * DAY).isoformat(), "--end", (FIRST + (night + 1) * DAY).isoformat()),
    ]
    return shop.submit("nightly", *arguments, environment=environment, code=code)


def found(shop: Workshop, night: int, sample: Mapping[str, Any] | None = None) -> Replayed:
    start = FIRST + night * DAY
    asked = Night(shop.pipeline, start, start + DAY, "", rules.sample_of(sample or {}))
    with shop.registry() as connection:
        known = nightly_replays.find(connection, asked)
    assert known is not None
    return known


def replay(shop: Workshop, job_id: str, night: int, **more: Any) -> Replayed:
    """Replay a night and return what was recorded; nothing of what it wrote is left."""
    ended = submitted(shop, job_id, night, **more)
    assert ended.code == 0, ended.output[-4000:]
    nothing_left(shop)
    return found(shop, night, more.get("sample"))


def nothing_left(shop: Workshop) -> None:
    with shop.registry() as connection:
        assert nightly_replays.with_scratch(connection, shop.pipeline) == []
    names = [*folders.all_names(shop.settings), *(path.name for path in shop.settings.generations.glob("*"))]
    left = [name for name in names if f"{shop.pipeline}-n" in name or f"{shop.pipeline}-out-n" in name]
    assert left == [], left


def plant(shop: Workshop, chosen: Callable[[Record], bool]) -> None:
    """Write the first chosen answer of the first live job once more, with another page."""
    topic = f"{shop.pipeline}-out-g1"
    answer = next(record for record in shop.read(topic) if chosen(record))
    value = json.dumps({**json.loads(answer.value or b""), "visited_page": "planted"}).encode()
    producer = KafkaProducer(bootstrap_servers=shop.settings.bootstrap)
    headers = [(name, text.encode()) for name, text in answer.headers.items()]
    producer.send(topic, key=answer.key, value=value, headers=headers, partition=answer.partition)
    producer.close()


def evidence(shop: Workshop, of: Replayed) -> dict[str, Any]:
    folder = shop.settings.evidence / of.replay_id
    assert (folder / f"night-{of.attempt}.html").is_file()
    body: dict[str, Any] = json.loads((folder / f"night-{of.attempt}.json").read_text())
    return body
