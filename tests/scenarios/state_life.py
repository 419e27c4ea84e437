"""A pipeline with state on a stage, under load: from the form to the last collected file, and rolled back."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from kafka import KafkaProducer

from rewind.registry import generations, manifest
from rewind.registry.database import now
from rewind.runtime import tables
from rewind.runtime.drivers import supervise
from tests.support.stage import Stage
from tests.support.workshop import Workshop, wait_for

BEGIN = datetime(2025, 9, 4, tzinfo=UTC)
STEP = timedelta(seconds=5)
USERS, TURN = 7, 600
RATE = 100


def visit(number: int) -> bytes:
    """Return a visit of event time; the users take turns, so that their sessions end."""
    user = number % USERS + USERS * (number // TURN % 2)
    at = (BEGIN + STEP * number).isoformat()
    return json.dumps({"event_id": f"v{number}", "visit_id": number, "user_id": user, "event_time": at}).encode()


@contextmanager
def visited(shop: Workshop, number: int) -> Iterator[None]:
    """Produce the visits from a number on while the body runs."""
    over, partitions = threading.Event(), len(shop.end())

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=shop.settings.bootstrap, linger_ms=20)
        following = itertools.count(number)
        # A rate, not a synchronisation: the load lasts as long as the life.
        while not over.wait(0.5):
            for at in itertools.islice(following, RATE // 2):
                producer.send(shop.topic, value=visit(at), partition=at % partitions)
        producer.flush()
        producer.close()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(produce)
        try:
            yield
        finally:
            over.set()
            running.result()


def live_with_state(stage: Stage) -> dict[str, object]:
    """Rewind by the plan of a dry run, collect the old generation; rewind again, roll back, collect the new one."""
    shop, name = stage.shop, stage.shop.pipeline
    shop.produce(*((None, visit(number)) for number in range(3 * TURN)))
    stage.deploy()
    with visited(shop, 3 * TURN):
        counts = _rewound(stage, "PT20S")
        assert stage.live() == f"{name}-g2"
        _collected(stage, f"{name}-g1")
        _rewound(stage, "P1D")
        assert stage.live() == f"{name}-g3"
        stage.run(f"rollback_{name}", {"dry_run": False, "reason": "shown", "grace": "PT20S"})
        assert stage.live() == f"{name}-g2"
        _collected(stage, f"{name}-g3")
        assert shop.holder(f"{name}-g2") is not None
    return counts


def _rewound(stage: Stage, grace: str) -> dict[str, object]:
    asked = {"from": "earliest", "same_code": True, "observe": "PT5S", "grace": grace}
    plan_id = stage.plan_of(stage.run(stage.rewind_dag, asked))
    run_id, rewind_id = stage.begin(apply_plan=plan_id)
    stage.answer(run_id)
    stage.succeeded(stage.rewind_dag, run_id)
    verdict = stage.shop.verdict(rewind_id)
    assert (verdict.verdict, verdict.reason) == ("pass", "")
    return {kind: count for kind, count in verdict.counts.items() if count}


def _collected(stage: Stage, job_id: str) -> None:
    """Collect a generation after its grace, and see that nothing of it is left."""
    shop = stage.shop
    with shop.registry() as connection:
        owned = manifest.read(connection, job_id)
    folder = supervise.generation_folder(shop.settings, job_id)
    assert supervise.checkpoint_folder(shop.settings, job_id).is_relative_to(folder)
    assert (folder / "checkpoint" / "state").exists()

    def over() -> bool:
        with shop.registry() as connection:
            until = generations.grace_until(connection, job_id)
        return until is not None and until < now()

    wait_for(f"the end of {job_id}'s grace", over)
    stage.run("collect_garbage", {"dry_run": False})
    with shop.registry() as connection:
        assert generations.read(connection, job_id).state == "collected"
    assert not folder.exists()
    gone = {entry.name for entry in owned}
    assert not gone & {*stage.shop_topics(), *tables.all_names(shop.settings)}
