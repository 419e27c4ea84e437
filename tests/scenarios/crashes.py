"""One life of a rewind on real parts, killed at each named side effect, before and after, and run again each time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from rewind.core import crash, lifecycle
from rewind.core.errors import RewindError
from rewind.registry import generations, manifest, rewinds
from rewind.registry.database import now
from rewind.runtime import announce
from rewind.runtime.kafka.broker import Broker
from tests.support.workshop import Ended, Workshop

POINTS: dict[str, tuple[str, ...]] = {
    "spin_up": ("generation.record", "bundle.freeze", "topic.create"),
    "backfill": ("chunk.write", "chunk.finish", "handoff.fix"),
    "cut_over": ("cut_over.intend", "pointer.switch", "announce.publish"),
    "abort": ("abort.intend", "generation.abort", "abort.close"),
    "rollback": ("rollback.intend", "pointer.roll_back", "announce.publish"),
    "collect_garbage": (
        "standby.drain",
        "generation.retire",
        "manifest.withdraw",
        "delete.folder",
        "delete.group",
        "delete.topic",
        "generation.collected",
    ),
}
HALF_DONE = (
    ("spin_up", "after:topic.create"),
    ("backfill", "after:chunk.write"),
    ("cut_over", "after:pointer.switch"),
    ("rollback", "after:pointer.roll_back"),
    ("collect_garbage", "after:delete.topic"),
)
"""Moments whose half-done work only the world shows: the registry does not know of it yet."""
NOTHING_LEFT = {"state": "collected", "undeleted": [], "topics": [], "folder": False, "group": {}, "refused": []}
"""What is left of a collected job."""
REWIND, ROLLBACK = "rw-0123456789", "rb-0123456789"


@dataclass
class Life:
    """A deployed and mirrored pipeline, and the points at which its steps are killed."""

    shop: Workshop
    points: Collection[tuple[str, str]]
    killed: Counter[str] = field(default_factory=Counter)

    def begin(self, records: int) -> None:
        """Produce, deploy and mirror; live and mirror have read all."""
        for p in range(2):
            self.shop.produce(*(visit(n) for n in range(p, records, 2)), partition=p)
        self.live()

    def live(self) -> None:
        """Deploy and mirror what was produced."""
        live = self.shop.deploy()
        for owner in (live, self.shop.mirror):
            self.shop.start(owner)
        for owner in (live, self.shop.mirror):
            self.shop.caught_up(owner)
        self.shop.stop(self.shop.mirror)

    def rewind(self) -> str:
        """Carry a rewind through to its switch; return the job that is live then."""
        self.shop.planned(REWIND, same_code=True)
        self.step("spin_up", "--rewind-id", REWIND)
        self.step("backfill", "--rewind-id", REWIND)
        job = self.candidate()
        self.shop.start(job)
        self.shop.caught_up(job)
        self.shop.step("validate", REWIND)
        self.shop.approve(REWIND)
        self.step("cut_over", "--rewind-id", REWIND)
        return job

    def roll_back(self) -> None:
        """Go back to the job that was live first."""
        asked = json.dumps({"dry_run": False, "reason": "drawn"})
        self.step("rollback", "--rollback-id", ROLLBACK, "--pipeline", self.shop.pipeline, "--request", asked)

    def collect(self, job: str) -> None:
        """Let the grace of a standby end, and collect it."""
        with self.shop.registry() as connection:
            generations.set_grace(connection, job, now())
        self.step("collect_garbage")

    def step(self, step: str, *arguments: str) -> None:
        """Run a step into each of its points, and then to its end."""
        for at in (at for of, at in self.points if of == step):
            ended = self.shop.submit(step, *arguments, environment={crash.VARIABLE: at})
            assert killed(ended), f"{step} was not killed at {at}: {ended.code} {ended.output[-2_000:]}"
            self.killed[step] += 1
        self.shop.run(step, *arguments)

    def sources(self, topic: str) -> Counter[str]:
        """Return how often each source record stands in an output."""
        return Counter(r.headers["rewind-source"] for r in self.shop.read(topic))

    def left_of(self, job: str) -> dict[str, Any]:
        """Return what is left of a job, in the registry and outside."""
        with self.shop.registry() as connection:
            found = generations.read(connection, job)
            entries = manifest.read(connection, job)
            ledger = [(line.kind, line.result) for line in manifest.ledger(connection, job)]
        broker = Broker(self.shop.settings)
        return {
            "state": found.state,
            "undeleted": [e.name for e in entries if e.state != manifest.DELETED],
            "topics": [t for t in broker.topics() if t in (found.output_topic, found.dead_letter_topic)],
            "folder": (self.shop.settings.generations / job).exists(),
            "group": broker.group_offsets(job, self.shop.topic),
            "refused": [kind for kind, result in ledger if result == "refused"],
        }

    def epochs(self) -> list[int]:
        """Return the epochs on the control topic, each once, in order."""
        own = [r for r in self.shop.read(announce.TOPIC) if r.key == self.shop.pipeline.encode()]
        told = [json.loads(r.value or b"{}")["epoch"] for r in own]
        return sorted(set(told))

    def states(self) -> dict[str, str]:
        with self.shop.registry() as connection:
            return {g.job_id: g.state for g in generations.all_of(connection, self.shop.pipeline)}

    def candidate(self) -> str:
        with self.shop.registry() as connection:
            rewind, _ = rewinds.read_active(connection, REWIND)
            made = generations.read(connection, rewind.job_id)
        assert made.state == lifecycle.CANDIDATE
        return made.job_id


def killed(ended: Ended) -> bool:
    """Return whether a main was killed, rather than ended by an error of its own."""
    own = {0, 1, 2} | {error.exit_code for error in RewindError.__subclasses__()}
    return ended.code not in own and "Traceback" not in ended.output


def visit(n: int) -> tuple[bytes, bytes]:
    """Return the n-th good record."""
    body = {"event_id": f"click-{n}", "visit_id": n, "event_time": "2025-09-04T07:00:00", "page": "home"}
    return str(n).encode(), json.dumps(body).encode()


def check(life: Life, records: int) -> None:
    """Live the life, and hold its end against that of a life without crashes."""
    life.begin(records)
    old = life.shop.pipeline + "-g1"
    new = life.rewind()
    sources = life.sources(f"{life.shop.pipeline}-out-g2")
    assert set(sources) == set(life.sources(f"{life.shop.pipeline}-out-g1"))
    assert len(sources) == records
    counts = life.shop.verdict(REWIND).counts
    repeats = {"repeated": counts["repeated"]} if counts["repeated"] else {}
    assert {name: n for name, n in counts.items() if n} == {"rows": records, "equal": records, **repeats}

    life.roll_back()
    assert life.states() == {old: "live", new: "standby"}
    life.collect(new)
    assert life.states() == {old: "live", new: "collected"}
    assert life.left_of(new) == NOTHING_LEFT
    # Live was deployed as epoch 1; each switch is announced, however often its task died.
    assert life.epochs() == [1, 2, 3]
    assert life.left_of(old)["topics"] == [f"{life.shop.pipeline}-out-g1", f"{life.shop.pipeline}-out-g1-dead"]
    assert life.shop.holder(old) is not None
    assert dict(life.killed) == dict(Counter(step for step, _ in life.points))
