"""Drawn sets of pipelines whose names nearly meet, and of strangers' things, through lives with deaths and clears.

Broker, disk and registry go away at drawn moments. Who made each thing is remembered apart from the registry: nothing
is ever deleted by another, no two owners come to be, and what is still there stays listed.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import delete, insert

from rewind.core import lifecycle, names
from rewind.core.errors import DeniedError, RetryError, RewindError
from rewind.core.model import Generation, Topic
from rewind.core.pipeline import DELTA, KAFKA, Pipeline
from rewind.core.planning.plan import Plan, Request
from rewind.registry import database, generations, manifest, owners, rewinds, schema, streams
from rewind.registry.database import writing
from rewind.runtime import collect, tables
from rewind.steps.generation import allocate
from rewind.steps.lifecycle import abort, collect_garbage, plan, spin_up
from tests.scenarios.crashes import POINTS
from tests.scenarios.machine import HOUR, Crash, World
from tests.support import fakes
from tests.support.fakes import FakeBroker

NAMES = ("x", "X", "mirror-x", "night-x", "x-g1", "y.z", "y_z")
BASES = ("x", "X", "x-g1", "y.z", "y_z", "out")
TOPICS = ("x", "X", "x-g1", "X-g2", "y.z")
SOURCE = "events"
STEPS = 30
MAKING = (*POINTS["spin_up"], "manifest.name", "manifest.made")
DELETING = (*POINTS["abort"], *POINTS["collect_garbage"], "delete.begin", "delete.record", "delete.table")
STRANGER = "a stranger"
OWNED = 4
"""Entries in the manifest of a generation that is whole: folder, group, output and dead letters."""


class Broker(FakeBroker):
    """A broker that remembers who made what, may be away from a call on, and shows some topics to nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.made_by: dict[str, str] = {}
        self.acting = STRANGER
        self.calls_left: int | None = None
        self.hidden: set[str] = set()

    def answer(self, *about: str) -> None:
        """Count a call.

        Raises:
            RetryError: The broker is away.
            DeniedError: The call is about a topic that it does not show.
        """
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise RetryError("away")
        if self.hidden.intersection(about):
            raise DeniedError("topic", f"the broker denies Describe on {about}", "Grant it")

    def topics(self) -> list[str]:
        self.answer()
        return sorted(set(self.described) - self.hidden)

    def topic(self, name: str) -> Topic | None:
        self.answer(name)
        return super().topic(name)

    def make(self, name: str, partitions: int = 1, **config: str) -> Topic:
        made = super().make(name, partitions, **config)
        self.made_by[made.id] = self.acting
        return made

    def create_topic(self, name: str, like: Topic, partitions: int, cleanup: str) -> str:
        self.answer(name)
        return super().create_topic(name, like, partitions, cleanup)

    def delete_topic(self, name: str, topic_id: str, timeout: float = 60) -> bool:
        self.answer(name)
        gone = super().delete_topic(name, topic_id, timeout)
        assert not gone or self.made_by[topic_id] == self.acting, f"{self.acting} deleted {name}"
        return gone

    def group_state(self, group: str) -> str | None:
        self.answer()
        return super().group_state(group)

    def delete_group(self, group: str) -> bool:
        self.answer()
        assert group == self.acting, f"{self.acting} deleted the group {group}"
        return super().delete_group(group)


@dataclass
class Drawn:
    """One set, and what became of it."""

    draw: random.Random
    home: Path
    reached: Counter[str]
    rewinds: dict[str, str] = field(default_factory=dict)
    tampered: set[tuple[str, str, str]] = field(default_factory=set)
    links: set[Path] = field(default_factory=set)
    registry_left: int | None = None
    disk_goes_at: str = ""

    def __post_init__(self) -> None:
        self.broker = Broker()
        self.world = World(self.home, self.broker, {})
        self.settings = self.world.settings
        self.settings.data.mkdir()
        chosen = self.draw.sample(NAMES, 4)
        bases = self.draw.sample(BASES, 3)
        self.bases = [*bases, *bases, *self.draw.choices(BASES, k=2)]
        self.pipelines = {name: self._declared(name) for name in chosen}
        self.source = self.broker.make(SOURCE, 2)
        self._stranger(f"{self.draw.choice(BASES)}-g{self.draw.randint(1, 3)}")

    def _declared(self, name: str) -> Pipeline:
        made = Pipeline(name, SOURCE, "event_id STRING", self.bases.pop(0))
        form = self.draw.choice((KAFKA, KAFKA, DELTA))
        return Pipeline(**{**made.__dict__, "output_format": form})

    def _stranger(self, name: str) -> None:
        self.broker.acting = STRANGER
        if name not in self.broker.described:
            self.broker.make(name)
            self.broker.send(name, b"k", b"v")

    # --- what is played

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Put fakes in the place of broker, disk and Spark, and let the world go away when it is drawn."""
        reach, missing, collected = self.world._reach, database._refuse_missing, collect.collect

        def reached(point: str) -> None:
            if point == self.disk_goes_at:
                self._disk_goes()
            reach(point)

        def registry(url: str) -> None:
            if self.registry_left is not None:
                self.registry_left -= 1
                if self.registry_left < 0:
                    raise RetryError("registry away")
            missing(url)

        def collecting(settings: Any, job_id: str) -> Any:
            with self._acting(job_id):
                return collected(settings, job_id)

        fakes_of: list[tuple[Any, dict[str, Any]]] = [
            (database, {"_refuse_missing": registry}),
            (allocate, {"session": lambda *_: None, "table": self._table}),
            (collect, {"collect": collecting}),
            (plan, {"_made": lambda *_: self.planned, "_proven": lambda *_: []}),
        ]
        with self.world.patched(), ExitStack() as stack:
            stack.enter_context(mock.patch.object(self.world, "_reach", reached))
            stack.enter_context(mock.patch("rewind.core.crash._reach", reached))
            for module, changes in fakes_of:
                stack.enter_context(mock.patch.multiple(module, **changes))
            yield

    def _table(self, _spark: Any, settings: Any, made: Generation, name: str) -> str:
        place = tables.path(settings, name)
        place.mkdir(parents=True, exist_ok=True)
        (place / "owner").write_text(made.job_id)
        tables.mark(settings, name, f"table of {made.job_id}")
        return f"table of {made.job_id}"

    @contextmanager
    def _acting(self, job_id: str) -> Iterator[None]:
        before, self.broker.acting = self.broker.acting, job_id
        yield
        self.broker.acting = before

    def _disk_goes(self) -> None:
        data = self.settings.data
        if data.is_dir():
            data.rename(self.home / "away")
            data.touch()

    def _disk_returns(self) -> None:
        if (self.home / "away").is_dir():
            self.settings.data.unlink()
            (self.home / "away").rename(self.settings.data)

    def attempt(self, what: str, body: Callable[[], object], points: tuple[str, ...] = ()) -> None:
        """Do it, perhaps into a crash, or while something goes away; then hold what is against what was."""
        trouble = self.draw.choice(("", "", "crash", "broker", "disk", "disk", "registry", "hidden"))
        at = f"{self.draw.choice(('before', 'after'))}:{self.draw.choice(points)}" if points else ""
        self.world.crash_at = at if trouble == "crash" else ""
        self.disk_goes_at = at if trouble == "disk" else ""
        self.broker.calls_left = self.draw.randint(0, 6) if trouble == "broker" else None
        self.registry_left = self.draw.randint(0, 12) if trouble == "registry" else None
        if trouble == "disk" and self.draw.random() < 0.7:
            self._disk_goes()
        if trouble == "hidden":
            self.broker.hidden = set(self.draw.sample(sorted(self.broker.described), 2)) - {SOURCE}
        try:
            body()
            self.reached[what] += 1
        except (RewindError, Crash, OSError) as error:
            self.reached[f"{what}: {type(error).__name__}"] += 1
        finally:
            self.world.crash_at, self.disk_goes_at = "", ""
            self.broker.calls_left, self.registry_left, self.broker.hidden = None, None, set()
            self.broker.acting = STRANGER
            self._disk_returns()
        self.check()

    # --- what is done

    def step(self) -> None:
        """Do one drawn thing."""
        every = sorted(self.pipelines)
        further = [name for name in every if self._active(name)] or [name for name in every if self._live(name)]
        name = self.draw.choice(further if further and self.draw.random() < 0.6 else every)
        # What leads on is likelier than what does not.
        if self._active(name):
            due = (self.spin_up, self.spin_up, self.switch, self.switch, self.abort, self.abort)
        else:
            due = (self.deploy if self._live(name) is None else self.start,) * 5
        aside = (self.deploy, self.mirror, self.collect, self.collect, self.tamper, self.link, self.a_stranger_comes)
        self.draw.choice((*due, *due, *aside))(name)

    def a_stranger_comes(self, _: str) -> None:
        """Let somebody make a topic and write to it."""
        self._stranger(f"{self.draw.choice(BASES)}-g{self.draw.randint(2, 4)}")

    def deploy(self, name: str) -> None:
        """Deploy a pipeline, or clear a deploy that died."""
        declared = self.pipelines[name]
        made = fakes.generation(declared, 1, state=lifecycle.CANDIDATE, topic_id=self.source.id)

        def body() -> None:
            live = self._live(name)
            if live is not None and live[0].job_id != made.job_id:
                return
            with self._acting(made.job_id):
                recorded = allocate.record(self.settings, made, None)
                allocate.make(self.settings, recorded, self.world._bundle(Path(), "b"), self.source, self.source)
            with writing(self.settings.registry_url) as connection:
                generations.set_first(connection, made.job_id)
                streams.wish(connection, made.job_id, streams.GENERATION, streams.RUN)
            self._runs(made.job_id)

        self.attempt("deploy", body, MAKING)

    def mirror(self, _: str) -> None:
        """Wish for the mirror of a topic."""
        owner = names.mirror_owner(self.draw.choice(TOPICS))

        def body() -> None:
            with writing(self.settings.registry_url) as connection:
                streams.wish(connection, owner, streams.MIRROR, streams.RUN)

        self.attempt("mirror", body)

    def start(self, name: str) -> None:
        """Plan and open a rewind, perhaps into an output of another name."""
        live = self._live(name)
        if live is None:
            return
        declared = self.pipelines[name]
        if self.draw.random() < 0.3:
            declared = Pipeline(**{**declared.__dict__, "output_topic": self.draw.choice(BASES)})
        rewind_id = f"rw-{len(self.rewinds)}"
        self.planned = self._plan(declared, live)

        def body() -> None:
            plan._plan(self.settings, rewind_id, name, {"dry_run": False})
            self.rewinds[rewind_id] = name

        self.attempt("plan", body)

    def _plan(self, declared: Pipeline, live: tuple[Generation, int]) -> Plan:
        with writing(self.settings.registry_url) as connection:
            job_id = names.job_id(declared.name, generations.next_number(connection, declared.name, "g"))
        return fakes.plan(
            request=Request(declared.name, reason=str(len(self.rewinds))),
            job_id=job_id,
            live_job_id=live[0].job_id,
            epoch=live[1],
            topic=SOURCE,
            topic_id=self.source.id,
            config=declared.frozen(),
            output_topic=names.output_topic(declared.output_topic, job_id),
            dead_letter_topic=names.dead_letter_topic(declared.output_topic, job_id),
        )

    def spin_up(self, name: str) -> None:
        """Make the candidate of a rewind, or clear the task that was to."""
        for rewind_id, job_id in self._active(name):

            def body(rewind_id: str = rewind_id, job_id: str = job_id) -> None:
                with self._acting(job_id):
                    spin_up.run(self.settings, rewind_id)

            self.attempt("spin_up", body, MAKING)

    def abort(self, name: str) -> None:
        """Abort a rewind."""
        for rewind_id, _ in self._active(name):
            self.attempt("abort", lambda r=rewind_id: abort.run(self.settings, r, name, "drawn"), DELETING)

    def switch(self, name: str) -> None:
        """Make a candidate that is whole live; the old job's grace is over at once."""
        for rewind_id, job_id in self._active(name):
            with writing(self.settings.registry_url) as connection:
                made = generations.find(connection, job_id)
                entries = manifest.read(connection, job_id)
                live = generations.live(connection, name)
                own = [entry for entry in entries if (job_id, entry.kind, entry.name) not in self.tampered]
                whole = len(own) == OWNED and all(entry.state == manifest.MADE for entry in own)
                if made is None or made.state != lifecycle.CANDIDATE or not whole or live is None:
                    continue
                if rewinds.fact(connection, rewind_id, rewinds.ABORTING) is not None:
                    continue
                generations.switch(connection, name, live[0].job_id, job_id, live[1], -HOUR)
                streams.wish(connection, job_id, streams.GENERATION, streams.RUN)
                rewinds.close(connection, rewind_id, lifecycle.FINISHED)
            self._runs(job_id)
            self.reached["switch"] += 1

    def collect(self, _: str) -> None:
        """Collect all that is due."""
        self.attempt("collect", lambda: collect_garbage.run(self.settings, dry_run=False), DELETING)

    def tamper(self, _: str) -> None:
        """Write a thing of one job into the manifest of another, by hand."""
        with writing(self.settings.registry_url) as connection:
            jobs = [g.job_id for name in self.pipelines for g in generations.all_of(connection, name)]
            if len(jobs) < 2 or len(self.tampered) > 1:
                return
            one, other = self.draw.sample(jobs, 2)
            mine = {(entry.kind, entry.name) for entry in manifest.read(connection, other)}
            for entry in manifest.read(connection, one):
                if entry.state == manifest.MADE and (entry.kind, entry.name) not in mine:
                    values = {"kind": entry.kind, "name": entry.name, "resource_id": entry.resource_id}
                    connection.execute(insert(schema.manifest).values(job_id=other, state=manifest.MADE, **values))
                    self.tampered.add((other, entry.kind, entry.name))
                    break
        self.reached["tampered"] += 1
        self.check()

    def link(self, name: str) -> None:
        """Put a link to a job's folder where another job would have its own, or into its folder."""
        there = [path for path in sorted(self.settings.generations.glob("*")) if not path.is_symlink()]
        if not there:
            return
        target = self.draw.choice(there)
        places = [self.settings.generations / names.job_id(name, self.draw.randint(1, 4)), *(p / "link" for p in there)]
        place = self.draw.choice(places)
        if not place.exists() and not place.is_symlink():
            place.symlink_to(target)
            self.links.add(place)
            self.reached["linked"] += 1

    def _runs(self, job_id: str) -> None:
        self.broker.positions.setdefault(job_id, {SOURCE: {0: 1}})

    def _live(self, name: str) -> tuple[Generation, int] | None:
        with writing(self.settings.registry_url) as connection:
            return generations.live(connection, name)

    def _active(self, name: str) -> list[tuple[str, str]]:
        with writing(self.settings.registry_url) as connection:
            found = rewinds.active_of(connection, name)
        return [] if found is None else [(found.id, found.job_id)]

    # --- what must hold

    def check(self) -> None:
        """Check that nobody touched what is another's, that a name has one owner, and what is there is listed."""
        with writing(self.settings.registry_url) as connection:
            jobs = {g.job_id: g for name in self.pipelines for g in generations.all_of(connection, name)}
            lists = {job: manifest.read(connection, job) for job in jobs}
            mirrors = streams.owners_of(connection, streams.MIRROR)
        own = {
            job: [entry for entry in entries if (job, entry.kind, entry.name) not in self.tampered]
            for job, entries in lists.items()
        }
        self._nothing_of_a_living_job_is_gone(jobs, own)
        self._strangers_keep_theirs()
        self._each_name_has_one_owner(jobs, own, mirrors)
        self._what_is_there_is_listed(own)

    def _nothing_of_a_living_job_is_gone(self, jobs: dict[str, Generation], own: dict[str, list[Any]]) -> None:
        for job, entries in own.items():
            if jobs[job].state in (lifecycle.RETIRED, lifecycle.ABORTED, lifecycle.COLLECTED):
                continue
            for entry in entries:
                if entry.state != manifest.MADE:
                    assert entry.state == manifest.NAMED, f"{job} is {jobs[job].state} and lost {entry}"
                elif entry.kind == manifest.TOPIC:
                    found = self.broker.described.get(entry.name)
                    assert found is not None, f"{entry} of {job} is gone"
                    assert (found.id, self.broker.made_by[found.id]) == (entry.resource_id, job)
                elif entry.kind == manifest.TABLE:
                    assert (self.settings.tables / entry.name / "owner").read_text() == job
                elif entry.kind == manifest.FOLDER:
                    assert (Path(entry.name) / "bundle" / "bundle.json").is_file(), f"{entry} of {job} is gone"

    def _strangers_keep_theirs(self) -> None:
        theirs = {topic_id for topic_id, who in self.broker.made_by.items() if who == STRANGER}
        assert theirs <= {found.id for found in self.broker.described.values()}

    def _each_name_has_one_owner(
        self, jobs: dict[str, Generation], own: dict[str, list[Any]], mirrors: list[str]
    ) -> None:
        keys: dict[tuple[str, str], str] = {}

        def owned(space: str, name: str, who: str) -> None:
            key = (space, name.lower().replace(".", "_"))
            assert keys.setdefault(key, who) == who, f"{key} belongs to {keys[key]} and to {who}"

        for job, made in jobs.items():
            owned("streams", job, f"job {job}")
            owned("streams", f"night-{made.pipeline}", f"nights of {made.pipeline}")
            owned("pipelines", made.pipeline, made.pipeline)
            if made.state != lifecycle.COLLECTED:
                owned("bases", made.frozen["config"]["output_topic"], made.pipeline)
            for entry in own[job]:
                if entry.kind in (manifest.TOPIC, manifest.TABLE) and entry.state != manifest.DELETED:
                    owned("outputs", entry.name, job)
        for owner in mirrors:
            owned("streams", owner, f"the mirror {owner}")

    def _what_is_there_is_listed(self, own: dict[str, list[Any]]) -> None:
        listed = {
            (entry.kind, Path(entry.name).name, job)
            for job, entries in own.items()
            for entry in entries
            if entry.state != manifest.DELETED
        }
        topics = {
            (manifest.TOPIC, name, self.broker.made_by[found.id])
            for name, found in self.broker.described.items()
            if self.broker.made_by[found.id] != STRANGER
        }
        folders = {
            (manifest.FOLDER, place.name, place.name)
            for place in self.settings.generations.glob("*")
            if not place.is_symlink()
        }
        made = {
            (manifest.TABLE, place.name, (place / "owner").read_text())
            for place in self.settings.tables.glob("*")
            if (place / "owner").is_file()
        }
        groups = {(manifest.GROUP, group, group) for group in self.broker.positions}
        assert topics | folders | made | groups <= listed, (topics | folders | made | groups) - listed

    def end(self) -> None:
        """Undo what was done by hand, and collect: what is over must go, and nothing else."""
        with writing(self.settings.registry_url) as connection:
            for job, kind, name in self.tampered:
                mine = schema.manifest.c.job_id == job
                mine &= (schema.manifest.c.kind == kind) & (schema.manifest.c.name == name)
                connection.execute(delete(schema.manifest).where(mine))
            assert owners.contested(connection) == []
        self.tampered.clear()
        for name, found in list(self.broker.described.items()):
            if self.broker.made_by[found.id] == STRANGER and name != SOURCE:
                del self.broker.described[name], self.broker.made_by[found.id]
        for place in self.links:
            if place.is_symlink():
                place.unlink()
        for name in self.pipelines:
            for rewind_id, _ in self._active(name):
                abort.run(self.settings, rewind_id, name, "the end")
        collect_garbage.run(self.settings, dry_run=False)
        self.check()
        with writing(self.settings.registry_url) as connection:
            over = [g for name in self.pipelines for g in generations.all_of(connection, name)]
            absent = [
                (line.kind, line.name, line.resource_id)
                for job in over
                for line in manifest.ledger(connection, job.job_id)
                if line.result == "absent"
            ]
        assert {g.state for g in over} <= {lifecycle.LIVE, lifecycle.CANDIDATE, lifecycle.COLLECTED}
        ids = {found.id for found in self.broker.described.values()}
        assert not [line for line in absent if line[2] in ids]


def played(seed: int, sets: int, steps: int = STEPS) -> Counter[str]:
    """Play drawn sets to their ends, and return how often each thing was done, or ended how.

    Args:
        seed: What the sets are drawn by.
        sets: How many.
        steps: What is done in each.
    """
    reached: Counter[str] = Counter()
    for number in range(sets):
        with tempfile.TemporaryDirectory() as folder:
            drawn = Drawn(random.Random(f"{seed}:{number}"), Path(folder) / "home", reached)
            try:
                with drawn.patched():
                    for _ in range(steps):
                        drawn.step()
                    drawn.end()
            except Exception as error:
                error.add_note(f"SEED={seed}, set {number}")
                raise
    return reached
