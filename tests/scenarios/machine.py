"""The lifecycle as a state machine: the product's own steps over a real registry, in a world of fakes, with crashes.

What a step does to data (Spark) is played; what it does to registry, topics, groups and folders is the real code.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rewind.core import crash, lifecycle
from rewind.core.errors import RetryError, RewindError
from rewind.core.model import Batch
from rewind.core.planning.plan import Plan, Request
from rewind.core.planning.stages import REWIND, SHAPES
from rewind.registry import generations, leases, manifest, progress, rewinds, streams, verdicts
from rewind.registry.database import now, writing
from rewind.registry.leases import Holder, Process
from rewind.registry.verdicts import Verdict
from rewind.runtime import announce, collect
from rewind.runtime.drivers import bundle, supervise
from rewind.runtime.drivers.bundle import Bundle
from rewind.steps.base import recording
from rewind.steps.compare import new_rows
from rewind.steps.compare.findings import Found
from rewind.steps.generation import allocate
from rewind.steps.lifecycle import abort, cut_over, rollback, spin_up
from tests.scenarios.crashes import POINTS
from tests.support.fakes import PIPELINE, FakeBroker, generation, installation, plan

NAME = PIPELINE.name
FOREIGN = ("visits", f"{PIPELINE.output_topic}-g10", f"{PIPELINE.output_topic}-g1x", "payroll")
HOUR = timedelta(hours=1)
SPINNING, SWITCHING = POINTS["spin_up"], POINTS["cut_over"]
ROLLING, DELETING, ABORTING = POINTS["rollback"], POINTS["collect_garbage"], POINTS["abort"]


def crashes(*points: str) -> st.SearchStrategy[str]:
    """Return where a step crashes: nowhere, more often than not."""
    at = [f"{moment}:{point}" for moment in ("before", "after") for point in points]
    return st.sampled_from([""] * len(at) + at)


which = st.integers(0, 2)
SELDOM = st.sampled_from((False, False, False, True))


REACHED: Counter[str] = Counter()
"""What the examples of this process reached, so that a test can tell that they reached anything."""


class Crash(BaseException):
    """The process ends here."""


@dataclass
class World:
    """The installation, its broker, and which drivers live."""

    home: Path
    broker: FakeBroker
    drivers: dict[str, int]
    crash_at: str = ""

    def __post_init__(self) -> None:
        self.settings = installation(self.home)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Put the fakes in the place of broker, processes and Spark."""
        equal = Found(Counter({"rows": 1}))
        fakes: list[tuple[Any, dict[str, Any]]] = [
            (crash, {"_reach": self._reach}),
            (recording, {"_end": self._end}),
            (leases, {"alive": self._alive}),
            (supervise, {"end": self._drained}),
            (bundle, {"verified": self._bundle, "freeze": self._freeze}),
            (cut_over, {"PATIENCE_SECONDS": 0}),
            (new_rows, {"session": lambda *_: None}),
            (new_rows.comparison, {"compared": lambda *_: equal}),
            (rollback, {"PATIENCE_SECONDS": 0}),
            *(
                (module, {"Broker": lambda *_: self.broker})
                for module in (announce, collect, allocate, cut_over, spin_up)
            ),
        ]
        with ExitStack() as stack:
            for module, changes in fakes:
                stack.enter_context(mock.patch.multiple(module, **changes))
            yield

    def _reach(self, point: str) -> None:
        if point == self.crash_at:
            raise Crash(point)

    def _end(self, settings: Any, rewind_id: str, step: str, attempt: int, state: str, evidence: Any) -> None:
        # A killed process records nothing of its end.
        if not (state == "failed" and str(evidence).count("Crash:")):
            with writing(settings.registry_url) as connection:
                rewinds.end_step(connection, rewind_id, step, attempt, state, evidence)

    def _alive(self, holder: Holder) -> bool:
        return holder.processes[0].pid in self.drivers.values()

    def _drained(self, settings: Any, owner: str, timeout: float = 0) -> None:
        with writing(settings.registry_url) as connection:
            stream = streams.read(connection, owner)
        if stream is not None and stream.wish == streams.RUN and owner in self.drivers:
            raise RetryError(f"{owner} lives on")
        self.drivers.pop(owner, None)

    def _bundle(self, folder: Path, expected: str) -> Bundle:
        return Bundle(folder, expected, {})

    def _freeze(self, made: Bundle, target: Path) -> Bundle:
        with crash.side_effect("bundle.freeze"):
            target.mkdir(parents=True, exist_ok=True)
            (target / "bundle.json").write_text("{}")
        return made


class Lifecycle(RuleBasedStateMachine):
    """Two actors that start, step, crash, repeat, abort, roll back and collect as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self.folder.name) / "home", FakeBroker(), {})
        self.settings = self.world.settings
        self._patches = self.world.patched()
        self._patches.__enter__()
        self.rewinds: list[str] = []
        self.rollbacks = 0
        self.pids = 100
        self.seen: tuple[str, int] = ("", 0)

    def teardown(self) -> None:
        try:
            self._end_all()
            self.nothing_is_left_but_what_lives()
        finally:
            self._patches.__exit__(None, None, None)
            self.folder.cleanup()

    @initialize()
    def deploy(self) -> None:
        for name in FOREIGN:
            self.world.broker.make(name)
        first = generation(number=1, state=lifecycle.CANDIDATE)
        made = allocate.record(self.settings, first, None)
        source = self.world.broker.described["visits"]
        allocate.make(self.settings, made, self.world._bundle(Path(), "b"), source, source)
        with writing(self.settings.registry_url) as connection:
            generations.set_first(connection, made.job_id)
            announce.prepare(connection, NAME, 1, None, made.job_id)
            streams.wish(connection, made.job_id, streams.GENERATION, streams.RUN)
        self._drive(made.job_id)
        self.seen = (made.job_id, 1)

    @rule(same=st.booleans())
    def start(self, same: bool) -> None:
        """An actor starts a rewind: one wins while none is active, all others are refused."""
        rewind_id = f"rw-{len(self.rewinds)}"
        with writing(self.settings.registry_url) as connection:
            active = rewinds.active_of(connection, NAME)
            live, epoch = generations.live(connection, NAME) or (None, 0)
            assert live is not None
            made = self._plan(live, epoch, generations.next_number(connection, NAME, "g"))
        opened = self._attempt(lambda: self._open(rewind_id, made))
        assert opened == (active is None)
        if opened:
            self.rewinds.append(rewind_id)
            if same:
                self._attempt(lambda: self._open(rewind_id, made))

    @rule(n=which, at=crashes(*SPINNING))
    def spin_up(self, n: int, at: str) -> None:
        self._step(n, at, lambda rewind_id: spin_up.run(self.settings, rewind_id))

    @rule(n=which)
    def backfill(self, n: int) -> None:
        self._backfill(n)

    @rule(steps=st.integers(1, 8), at=crashes(*SPINNING, *SWITCHING))
    def advance(self, steps: int, at: str) -> None:
        """Take the steps that are due for the newest rewind, as Airflow would; crash in the last, perhaps."""
        for n in range(steps):
            self._advance(at if n == steps - 1 else "")

    def _advance(self, at: str) -> None:
        if not self.rewinds:
            return self.start(same=False)
        with writing(self.settings.registry_url) as connection:
            rewind_id = self.rewinds[-1]
            done = {name for name in SHAPES[REWIND].steps if rewinds.last_attempt(connection, rewind_id, name, "done")}
            given, verdict = verdicts.approval(connection, rewind_id), verdicts.newest(connection, rewind_id)
            found = rewinds.read(connection, rewind_id)
            backfilled = rewinds.last_attempt(connection, rewind_id, "backfill", "done")
        if found.state != lifecycle.ACTIVE:
            return self.start(same=False)
        due: tuple[tuple[bool, Callable[[], None]], ...] = (
            ("spin_up" not in done, lambda: self.spin_up(0, at)),
            ("backfill" not in done, lambda: self._backfill(0)),
            (found.job_id not in self.world.drivers, lambda: self.start_candidate(0)),
            (
                verdict is None or verdict.backfill_attempt != backfilled or verdict.verdict == lifecycle.ERROR,
                lambda: self.validate(0, "pass"),
            ),
            (given is None, lambda: self.answer(0, "approve", "known")),
            ("cut_over" not in done, lambda: self.cut_over(0, at)),
            (True, lambda: self.end_observation(0)),
        )
        return next(take for is_due, take in due if is_due)()

    def _backfill(self, n: int) -> None:
        def body(rewind_id: str) -> None:
            with writing(self.settings.registry_url) as connection:
                rewind, _ = rewinds.read_active(connection, rewind_id)
                generations.read(connection, rewind.job_id)
                generations.set_handoff(connection, rewind.job_id, {0: 5, 1: 5})
            recording.recorded(self.settings, rewind_id, "backfill", lambda _: {})

        self._step(n, "", body)

    @rule(n=which)
    def start_candidate(self, n: int) -> None:
        def body(rewind_id: str) -> None:
            with writing(self.settings.registry_url) as connection:
                rewind, _ = rewinds.read_active(connection, rewind_id)
                made = generations.read(connection, rewind.job_id)
                if made.handoff is None or made.state != lifecycle.CANDIDATE:
                    return
                streams.wish(connection, made.job_id, streams.GENERATION, streams.RUN)
            self._drive(made.job_id)

        self._step(n, "", body)

    @rule(n=which, found=st.sampled_from(("pass", "pass", "fail", "error")))
    def validate(self, n: int, found: str) -> None:
        def body(rewind_id: str) -> None:
            with writing(self.settings.registry_url) as connection:
                rewind, _ = rewinds.read_active(connection, rewind_id)
                backfilled = rewinds.last_attempt(connection, rewind_id, "backfill", "done")
                at = self._position(connection, rewind.job_id)
                if not backfilled:
                    return
                attempt = rewinds.begin_step(connection, rewind_id, "validate")
                made = Verdict(attempt, backfilled, found, {0: 0, 1: 0}, at, {"equal": 1}, [], "", now())
                verdicts.store(connection, rewind_id, made)
                rewinds.end_step(connection, rewind_id, "validate", attempt, "done", {})

        self._step(n, "", body)

    @rule(n=which, given=st.sampled_from(("approve", "approve", "reject")), reason=st.sampled_from(("", "known")))
    def answer(self, n: int, given: str, reason: str) -> None:
        def body(rewind_id: str) -> None:
            with writing(self.settings.registry_url) as connection:
                rewinds.read_active(connection, rewind_id)
                verdicts.answer(connection, rewind_id, given, "ada", reason)

        self._step(n, "", body)

    @rule(n=which, at=crashes(*SWITCHING))
    def cut_over(self, n: int, at: str) -> None:
        self._step(n, at, lambda rewind_id: cut_over.run(self.settings, rewind_id))

    @rule(n=which, at=crashes(*ABORTING, *DELETING), sure=SELDOM)
    def abort(self, n: int, at: str, sure: bool) -> None:
        if sure:
            self._step(n, at, lambda rewind_id: abort.run(self.settings, rewind_id, NAME, "drawn"))

    @rule(n=which)
    def end_observation(self, n: int) -> None:
        def body(rewind_id: str) -> None:
            with writing(self.settings.registry_url) as connection:
                if rewinds.fact(connection, rewind_id, "cut_over") is not None:
                    rewinds.close(connection, rewind_id, lifecycle.FINISHED)

        self._step(n, "", body)

    @rule(again=st.booleans(), at=crashes(*ROLLING))
    def roll_back(self, again: bool, at: str) -> None:
        self.rollbacks += not again
        given = {"dry_run": False, "reason": "drawn"}
        self._attempt(lambda: rollback.run(self.settings, f"rb-{self.rollbacks}", NAME, given), at)

    @rule(n=st.integers(0, 3), at=crashes(*DELETING))
    def collect(self, n: int, at: str) -> None:
        """An actor collects any job by name, due or not."""
        with writing(self.settings.registry_url) as connection:
            jobs = [g.job_id for g in generations.all_of(connection, NAME)]
            job = jobs[max(-len(jobs), -1 - n)]
            before = generations.read(connection, job).state
            kept = generations.grace_until(connection, job)
            watched = job in rewinds.watched_standbys(connection)
        self._attempt(lambda: collect.retire_and_collect(self.settings, job), at)
        REACHED[f"collected a {before}"] += self._states()[job] == lifecycle.COLLECTED
        if before in (lifecycle.LIVE, lifecycle.CANDIDATE) or (
            before == lifecycle.STANDBY and (watched or (kept is not None and kept > now()))
        ):
            assert self._states()[job] == before, f"{job} was {before} and is {self._states()[job]}"

    @rule(n=which)
    def grace_ends(self, n: int) -> None:
        standbys = [job for job, state in self._states().items() if state == lifecycle.STANDBY]
        if standbys:
            with writing(self.settings.registry_url) as connection:
                generations.set_grace(connection, standbys[n % len(standbys)], now() - HOUR)
            self.end_observation(0)
            self.collect(n, "")

    @rule(n=which, sure=SELDOM)
    def a_driver_dies(self, n: int, sure: bool) -> None:
        if sure and self.world.drivers:
            self.world.drivers.pop(sorted(self.world.drivers)[n % len(self.world.drivers)])

    @rule()
    def supervisors_look(self) -> None:
        """Whatever is wished to run and has no driver gets one; what is wished to drain ends."""
        with writing(self.settings.registry_url) as connection:
            wished = {stream.owner: stream.wish for stream in streams.all_of(connection)}
        for owner, wish in wished.items():
            if wish == streams.RUN and owner not in self.world.drivers:
                self._drive(owner)
            elif wish == streams.DRAIN:
                self.world.drivers.pop(owner, None)

    @invariant()
    def the_registry_holds_its_promises(self) -> None:
        if not self.seen[1]:
            return
        states = list(self._states().values())
        assert states.count(lifecycle.LIVE) == 1
        assert states.count(lifecycle.CANDIDATE) <= 1
        with writing(self.settings.registry_url) as connection:
            live, epoch = generations.live(connection, NAME) or (None, 0)
            assert live is not None
            assert live.state == lifecycle.LIVE
            stream = streams.needed(connection, live.job_id)
            active = [r for r in rewinds.all_of(connection, NAME) if r.state == lifecycle.ACTIVE]
            bodies = [announce.body(connection, NAME, e) for e in range(1, epoch + 1)]
            assert stream.wish == streams.RUN, f"live {live.job_id} is wished to {stream.wish}"
            assert len(active) <= 1
            assert all(body is not None for body in bodies)
            self._check_move(connection, live.job_id, epoch)
        REACHED[f"epoch {epoch}"] += epoch > self.seen[1]
        self.seen = (live.job_id, epoch)

    @invariant()
    def what_runs_keeps_what_it_owns(self) -> None:
        states = self._states()
        with writing(self.settings.registry_url) as connection:
            for job, state in states.items():
                if state not in (lifecycle.LIVE, lifecycle.STANDBY):
                    continue
                for entry in manifest.read(connection, job):
                    assert entry.state == manifest.MADE, f"{entry} of {state} {job}"
                    if entry.kind == manifest.TOPIC:
                        found = self.world.broker.topic(entry.name)
                        assert found is not None
                        assert found.id == entry.resource_id
                    if entry.kind == manifest.FOLDER:
                        assert (Path(entry.name) / "bundle" / "bundle.json").exists()
        assert set(FOREIGN) <= set(self.world.broker.topics()) or not self.seen[1]

    def nothing_is_left_but_what_lives(self) -> None:
        if not self.seen[1]:
            return
        live = self.seen[0]
        number = live.rpartition("-g")[2]
        output = f"{PIPELINE.output_topic}-g{number}"
        own = {output, f"{output}-dead"}
        left = set(self.world.broker.topics()) - {announce.TOPIC}
        assert left == {*FOREIGN, *own}, f"left: {left}"
        assert {p.name for p in self.settings.generations.iterdir()} == {live}
        assert set(self._states().values()) <= {lifecycle.LIVE, lifecycle.COLLECTED}

    def _check_move(self, connection: Any, live: str, epoch: int) -> None:
        before, then = self.seen
        assert epoch in (then, then + 1)
        assert (live != before) == (epoch == then + 1)
        rewind_id = generations.rewind_of(connection, live)
        if epoch == then or rewind_id is None:
            return
        verdict, given = verdicts.newest(connection, rewind_id), verdicts.approval(connection, rewind_id)
        first = rewinds.fact(connection, rewind_id, "cut_over")
        if first["epoch"] == epoch:
            assert verdict is not None
            assert given is not None
            assert (given.answer, verdict.verdict != lifecycle.ERROR) == ("approve", True)
            assert verdict.backfill_attempt == rewinds.last_attempt(connection, rewind_id, "backfill", "done")

    def _step(self, n: int, at: str, body: Callable[[str], None]) -> None:
        if self.rewinds:
            rewind_id = self.rewinds[max(-len(self.rewinds), -1 - n)]
            self._attempt(lambda: body(rewind_id), at)

    def _attempt(self, body: Callable[[], None], at: str = "") -> bool:
        """Run a body, perhaps into a crash; return whether it came to its end."""
        self.world.crash_at = at
        try:
            body()
        except (RewindError, Crash) as error:
            REACHED[type(error).__name__] += 1
            return False
        finally:
            self.world.crash_at = ""
        return True

    def _open(self, rewind_id: str, made: Plan) -> None:
        with writing(self.settings.registry_url) as connection:
            rewinds.open_rewind(connection, rewind_id, made)

    def _drive(self, job: str) -> None:
        if job in self.world.drivers:
            return
        self.pids += 1
        holder = Holder("here", "boot", (Process(self.pids, 1),), self.pids)
        with writing(self.settings.registry_url) as connection:
            leases.take(connection, job, holder)
            at = Batch(self.pids, {0: 0, 1: 0}, {0: 10, 1: 10}, 10, now())
            progress.record(connection, job, self.pids, at)
        self.world.drivers[job] = self.pids

    def _position(self, connection: Any, job: str) -> dict[int, int]:
        return progress.position(connection, job, None) or {0: 0, 1: 0}

    def _states(self) -> dict[str, str]:
        with writing(self.settings.registry_url) as connection:
            return {g.job_id: g.state for g in generations.all_of(connection, NAME)}

    def _end_all(self) -> None:
        """Abort or finish what is active, let every grace end, collect: all must come to an end."""
        if not self.seen[1]:
            return
        for rewind_id in self.rewinds:
            with writing(self.settings.registry_url) as connection:
                if rewinds.fact(connection, rewind_id, "cut_over") is not None:
                    rewinds.close(connection, rewind_id, lifecycle.FINISHED)
            abort.run(self.settings, rewind_id, NAME, "the end")
        with writing(self.settings.registry_url) as connection:
            epoch = (generations.live(connection, NAME) or (None, 0))[1]
            for standby in generations.in_state(connection, NAME, lifecycle.STANDBY):
                generations.set_grace(connection, standby.job_id, now() - HOUR)
        announce.publish(self.settings, NAME, epoch)
        for due in collect.due(self.settings):
            collect.retire_and_collect(self.settings, due.job_id)

    def _plan(self, live: Any, epoch: int, number: int) -> Plan:
        output = f"{PIPELINE.output_topic}-g{number}"
        return plan(
            request=Request(NAME, reason=str(len(self.rewinds))),
            job_id=f"{NAME}-g{number}",
            live_job_id=live.job_id,
            epoch=epoch,
            topic_id=self.world.broker.described["visits"].id,
            output_topic=output,
            dead_letter_topic=f"{output}-dead",
        )
