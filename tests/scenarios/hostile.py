"""Manifests that name what is not theirs, and a collection that races with a rollback; on a real broker."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

from sqlalchemy import delete

from rewind.core import lifecycle
from rewind.core.errors import RefusedError, RewindError
from rewind.core.model import Batch
from rewind.core.settings import Settings
from rewind.registry import database, generations, leases, manifest, progress, schema, streams
from rewind.registry.database import now, writing
from rewind.runtime import collect
from rewind.runtime.kafka.broker import Broker
from rewind.steps.lifecycle import rollback
from tests.support.fakes import PIPELINE, generation
from tests.support.workshop import Workshop

NAME, HOUR = PIPELINE.name, timedelta(hours=1)
JOB, SIBLING, LIVE = f"{NAME}-g1", f"{NAME}-g10", f"{NAME}-g2"
OUTPUT = f"{PIPELINE.output_topic}-g1"


class Land:
    """A retired job beside its siblings, live, and what is no business of ours."""

    def __init__(self, shop: Workshop) -> None:
        self.shop = shop
        self.settings = shop.settings
        self.broker = Broker(self.settings)
        self.topics = [f"{OUTPUT}0", f"{OUTPUT}0-dead", f"{PIPELINE.output_topic}-g2", f"{OUTPUT}x", "payroll"]
        for name in (*self.topics, OUTPUT):
            shop.create_topic(name, 1)
            shop.produce((b"k", b"v"), topic=name)
        for group in (SIBLING, LIVE, "payroll-readers"):
            self.broker.commit(group, "payroll", {0: 1})
        self.outside = self.settings.generations.parent / "outside"
        for folder in (self.outside, self.settings.generations / SIBLING, self.settings.generations / LIVE):
            (folder / "checkpoint").mkdir(parents=True)
            (folder / "checkpoint" / "0").write_text("offsets")
        self.link = self.settings.generations / JOB
        self.link.symlink_to(SIBLING)
        with writing(self.settings.registry_url) as connection:
            generations.create(connection, generation(number=1, state=lifecycle.RETIRED), None)

    def hostile(self) -> list[tuple[str, str, str | None]]:
        """Return entries that each name something that is not the retired job's, or not by this id."""
        ids = {name: found.id for name in self.topics if (found := self.broker.topic(name)) is not None}
        root = str(self.settings.generations)
        topics = [("topic", name, topic_id) for name, topic_id in ids.items()]
        topics += [("topic", name, None) for name in ids]
        # The job's own name, but another topic by now; and one that was never recorded as made, with records.
        topics += [("topic", OUTPUT, "AAAAAAAAAAAAAAAAAAAAAA"), ("topic", OUTPUT, None)]
        topics += [("topic", name, None) for name in (f"{OUTPUT}.*", "", "..", f"../{OUTPUT}", "__consumer_offsets")]
        groups = [("group", name, None) for name in (SIBLING, LIVE, "payroll-readers", f"{JOB}*")]
        folders = [
            *(f"{root}/{name}" for name in (SIBLING, LIVE, f"{JOB}/../{SIBLING}", "..", "../outside", "")),
            str(self.outside),
            str(self.link),
        ]
        return [*topics, *groups, *(("folder", name, None) for name in folders)]

    def collect(self, kind: str, name: str, resource_id: str | None) -> bool:
        """Collect by a manifest of this one entry; return whether it was refused."""
        with writing(self.settings.registry_url) as connection:
            connection.execute(delete(schema.manifest))
            manifest.name(connection, JOB, kind, name)
            if resource_id is not None:
                manifest.made(connection, JOB, kind, name, resource_id)
        try:
            collect.collect(self.settings, JOB)
        except RefusedError:
            return True
        return False

    def others(self) -> dict[str, Any]:
        """Return all that is not the retired job's."""
        found = {name: self.broker.topic(name) for name in (*self.topics, OUTPUT, self.shop.topic)}
        groups = {group: self.broker.group_offsets(group, "payroll") for group in (SIBLING, LIVE, "payroll-readers")}
        files = sorted(str(p) for p in self.settings.generations.parent.rglob("*") if p.name == "0")
        ids = {name: topic.id if topic else None for name, topic in found.items()}
        return {"topics": ids, "groups": groups, "files": files, "link": self.link.is_symlink()}


def race(settings: Settings, number: int) -> str:
    """Let a collection and a rollback want the same standby at once; return which came first.

    The standby's grace ends at the moment both begin. Its driver ends when it is wished to.
    """
    made = Settings(**{**settings.__dict__, "home": settings.home / str(number)})
    url = f"sqlite:///{settings.home}/race-{number}.db"
    made = Settings(**{**made.__dict__, "registry_url": url})
    database.upgrade(url)
    tokens = _switched(url, number)
    over = threading.Event()
    driver = threading.Thread(target=_driver, args=(url, tokens[JOB], over))
    ends: dict[str, str] = {}
    start = threading.Barrier(2)
    wants = [
        threading.Thread(target=_want, args=(start, ends, "collected", lambda: collect.retire_and_collect(made, JOB))),
        threading.Thread(
            target=_want,
            args=(start, ends, "rolled back", lambda: rollback.run(made, "rb-1", NAME, {"dry_run": False})),
        ),
    ]
    for thread in (driver, *wants):
        thread.start()
    for thread in wants:
        thread.join()
    over.set()
    driver.join()
    return _settled(url, ends)


def _switched(url: str, number: int) -> dict[str, int]:
    with writing(url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, JOB)
        generations.create(connection, generation(number=2, state=lifecycle.CANDIDATE), None)
        generations.switch(connection, NAME, JOB, LIVE, 1, timedelta(milliseconds=4 * number))
        tokens = {}
        for job in (JOB, LIVE):
            streams.wish(connection, job, streams.GENERATION, streams.RUN)
            tokens[job] = leases.take(connection, job, leases.this_driver())
            progress.record(connection, job, 1, Batch(1, {0: 0, 1: 0}, {0: 9, 1: 9}, 18, now()))
    return tokens


def _driver(url: str, token: int, over: threading.Event) -> None:
    while not over.wait(0.01):
        with writing(url) as connection:
            if streams.needed(connection, JOB).wish == streams.DRAIN:
                leases.give_back(connection, JOB, token)
                return


def _want(start: threading.Barrier, ends: dict[str, str], name: str, body: Any) -> None:
    start.wait()
    # Until the grace is over a collection is refused: a count of tries could be used up before it.
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            body()
        except RewindError as refused:
            ends[name] = f"refused: {refused}"
            if name == "rolled back" or "is live" in str(refused):
                return
        else:
            ends[name] = "done"
            return


def _settled(url: str, ends: dict[str, str]) -> str:
    with writing(url) as connection:
        live, epoch = generations.live(connection, NAME) or (None, 0)
        assert live is not None
        states = {g.job_id: g.state for g in generations.all_of(connection, NAME)}
        wish = streams.needed(connection, live.job_id).wish
    assert wish == streams.RUN, ends
    if live.job_id == JOB:
        assert (states[JOB], states[LIVE], epoch, ends["rolled back"]) == ("live", "standby", 3, "done"), ends
        return "rolled back"
    assert (states[JOB], epoch, ends["collected"]) == ("collected", 2, "done"), (states, ends)
    return "collected"
