"""The demo, step by step."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from examples.demo import driver, load, pipelines, proof
from examples.demo.driver import Killing
from examples.demo.errors import DemoError
from examples.demo.follow import Follower
from examples.demo.load import Load
from examples.demo.proof import Proof
from examples.demo.world import World
from rewind.core import lifecycle, names
from rewind.core.offsets import Vector
from rewind.core.planning.plan import Plan
from rewind.declared import forms
from rewind.local.progress import Look
from rewind.local.stack import PROJECT
from rewind.registry import rewinds
from rewind.registry.database import now
from rewind.registry.snapshot import snapshot
from rewind.runtime.drivers import supervise
from rewind.views.pointer import Resolved, resolve
from rewind.views.status_jobs import Job
from rewind.views.status_rewinds import RewindView

ASKED = {"from": "earliest", "observe": "PT20S", "grace": "PT30S", "reason": "pages in small letters"}

CAUGHT_UP = 10_000
"""Offsets behind Kafka's end that a stream at this rate always is, a few batches' worth."""


@dataclass
class Story:
    """What has happened so far; what is missing tells how far a failed demo came.

    Attributes:
        began: When it began, on the monotonic clock.
        live_before: The pointer before the rewind.
        live_after: The pointer after it.
        plan: The plan that was carried out.
        rewind: The rewind, at its end.
        killing: How the killed driver came back.
        gap: Longest time between two batches of live, in seconds.
        gap_in_rewind: The same from the trigger on.
        proof: The independent check.
        seconds: Wall seconds of each part of the demo.
        rewind_id: Id of the rewind.
        failure: Why it failed; empty when it did not.
    """

    began: float = field(default_factory=time.monotonic)
    live_before: Resolved | None = None
    live_after: Resolved | None = None
    plan: Plan | None = None
    rewind: RewindView | None = None
    killing: Killing | None = None
    gap: float | None = None
    gap_in_rewind: float | None = None
    proof: Proof | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    rewind_id: str = ""
    failure: str = ""


class Scenario:
    """Plays the demo in a world."""

    def __init__(self, world: World, story: Story) -> None:
        """Keep where to play and what to tell."""
        self._world, self._story = world, story

    def play(self, producing: Load) -> None:
        """Play all parts under the load of a producer, and stop it before the last.

        Raises:
            DemoError: Something was not as it should be.
        """
        with self._part("history produced"):
            load.await_history(producing, self._world.waits)
        self._under_load(producing)
        producing.stop()
        with self._part("checked by a separate reader"):
            self._story.proof = proof.make(self._world, self._story, producing.progress())
        self._world.waits.check()

    def _under_load(self, producing: Load) -> None:
        with self._part("deployed and caught up"):
            live = self._deploy()
        with self._part("live killed and back"):
            pipelines.install_mended(
                PROJECT / "include" / "pipelines", self._world.settings.pipelines, self._world.names.pipeline
            )
            # The dry run needs no living driver: it goes on while live comes back.
            dry_run = self._world.start_dag(self._world.rewind_dag, {**ASKED, "dry_run": True})
            self._story.killing = driver.kill_once(self._world, live.job_id, live.output_topic)
        load.plant_bystanders(self._world, live.job_id, live.output_topic)
        with self._part("planned (dry run)"):
            self._dry_run(dry_run)
        self._rewind(live)
        untouched = proof.photograph(self._world, live)
        with self._part("collected"):
            self._collect(live.job_id)
        producing.progress()
        proof.check_untouched(self._world, live, untouched)

    def _deploy(self) -> Resolved:
        world = self._world
        world.start_dag(f"mirror_{world.names.topic}", {})
        world.run_dag(f"deploy_{world.names.pipeline}", {"from": "earliest"})
        live = self._story.live_before = resolve(world.names.pipeline, world.settings.registry_url)
        driver = functools.partial(world.driver, live.job_id)
        mirror = functools.partial(world.driver, names.mirror_owner(world.names.topic))
        world.waits.until(f"{live.job_id} to catch up", lambda: self._caught_up(live.job_id), driver, pause=2)
        world.waits.until("the mirror to catch up", self._mirrored, mirror, pause=2)
        return live

    def _dry_run(self, run_id: str) -> None:
        dag = self._world.rewind_dag
        self._world.await_run(dag, run_id)
        with snapshot(self._world.settings.registry_url) as connection:
            planned = rewinds.steps_of(connection, forms.rewind_id(dag, run_id))
            plan_id = planned[-1].evidence["plan_id"] if planned else ""
            self._story.plan = rewinds.read_plan(connection, plan_id)

    def _rewind(self, live: Resolved) -> None:
        world, story = self._world, self._story
        assert story.plan is not None
        begun, triggered = now(), time.monotonic()
        conf = {**ASKED, "dry_run": False, "apply_plan": story.plan.id}
        run_id = world.start_dag(world.rewind_dag, conf)
        story.rewind_id = forms.rewind_id(world.rewind_dag, run_id)
        world.console.print(f"  rewind {story.rewind_id}, plan {story.plan.id}: {world.stack.airflow_url}")
        story.rewind = Follower(world, run_id, story.rewind_id).to_the_end()
        story.seconds["rewound"] = round(time.monotonic() - triggered, 1)
        story.live_after = resolve(world.names.pipeline, world.settings.registry_url)
        story.gap = driver.longest_gap(world, live.job_id)
        story.gap_in_rewind = driver.longest_gap(world, live.job_id, since=begun)
        if story.live_after.job_id != story.plan.job_id:
            raise DemoError(f"{story.live_after.job_id} is live, not {story.plan.job_id}")

    def _collect(self, job_id: str) -> None:
        """Run the garbage DAG until it has taken the old generation, whose grace period must end first."""
        waits = self._world.waits
        waits.until("the grace period to end", lambda: self._grace_over(job_id), pause=1)
        waits.until(f"{job_id} to be collected", lambda: self._collected(job_id), lambda: self._world.driver(job_id))

    def _grace_over(self, job_id: str) -> Look[bool]:
        until_when = self._job(job_id).grace_until
        left = 0.0 if until_when is None else (until_when - now()).total_seconds()
        return Look(left <= 0 or None, f"{left:.0f} s left", left)

    def _collected(self, job_id: str) -> Look[bool]:
        self._world.run_dag("collect_garbage", {"dry_run": False})
        job, view = self._job(job_id), self._world.pipeline()
        left = [(g.waits, len(g.things)) for g in view.garbage if g.job_id == job_id]
        far = "; ".join(f"{count} things left, {why}" for why, count in left)
        return Look(job.state == lifecycle.COLLECTED or None, far, (job.state, left))

    def _caught_up(self, job_id: str) -> Look[bool]:
        job = self._job(job_id)
        if job.driver.state == "quarantined":
            log = supervise.log_folder(self._world.settings, job_id)
            raise DemoError(f"{job_id} is quarantined: {job.driver.cause}. Its logs: {log}")
        done = job.lag is not None and job.lag <= CAUGHT_UP and job.last_batch_at is not None
        return Look(done or None, _of(job.position, job.lag), job.position)

    def _mirrored(self) -> Look[bool]:
        found = next((m for m in self._world.status().mirrors if m.topic == self._world.names.topic), None)
        if found is None:
            return Look(far="not begun")
        done = found.lag is not None and found.lag <= 5 * CAUGHT_UP
        return Look(done or None, _of(found.position, found.lag), found.position)

    def _job(self, job_id: str) -> Job:
        return next(job for job in self._world.pipeline().jobs if job.job_id == job_id)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        with self._world.voice.doing(f"{name} …"):
            yield
        self._story.seconds[name] = round(time.monotonic() - begun, 1)
        self._world.console.print(f"[green]{name}[/] in {self._story.seconds[name]:.1f} s")


def _of(position: Vector, lag: int | None) -> str:
    read = sum(position.values())
    return f"{read:,} records" if lag is None else f"{read:,} of {read + lag:,} records"
