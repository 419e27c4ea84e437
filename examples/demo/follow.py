"""Follow a rewind with a live display, and answer its question."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from examples.demo.errors import DemoError
from examples.demo.world import World
from rewind.cli import render
from rewind.core import lifecycle
from rewind.local.progress import Look
from rewind.views.status import PipelineView, Status
from rewind.views.status_rewinds import RewindView
from rewind.views.status_steps import RUNNING

LOOK_SECONDS = 1.0
APPROVE = "Approve"


class Follower:
    """Follows one rewind to its end."""

    def __init__(self, world: World, run_id: str, rewind_id: str) -> None:
        """Keep what to follow."""
        self._world, self._run_id, self._rewind_id = world, run_id, rewind_id
        self._said: dict[str, str] = {}

    def to_the_end(self) -> RewindView:
        """Show the rewind until it has ended, approving a passed verdict, and return it.

        Raises:
            DemoError: It failed, or its verdict is not a pass.
            StuckError: Nothing of it moved any more.
        """
        world, what = self._world, f"rewind {self._rewind_id}"
        with Live(console=world.console, auto_refresh=False, transient=True) as live:
            return world.waits.until(f"{what} to end", lambda: self._look(live), world.submits, LOOK_SECONDS)

    def _look(self, live: Live) -> Look[RewindView]:
        found = self._world.status()
        done = self._world.run_ended(self._world.rewind_dag, self._run_id)
        pipeline = found.pipeline(self._world.names.pipeline)
        view = next((r for r in pipeline.rewinds if r.id == self._rewind_id), None)
        live.update(self._page(found, view), refresh=self._world.console.is_terminal)
        if view is None:
            return Look(far="planning")
        self._say(view)
        self._answer(view)
        ended = view if done and view.state == lifecycle.FINISHED else None
        return Look(ended, far(view), marks(view, pipeline))

    def _page(self, found: Status, view: RewindView | None) -> RenderableType:
        if view is None:
            return Text("  planning …")
        jobs = render.jobs_table(found.pipeline(self._world.names.pipeline).jobs)
        return Group(*render.rewind_parts(view), Text(), jobs, Text(), render.mirrors_table(found.mirrors))

    def _say(self, view: RewindView) -> None:
        for step in view.steps:
            if step.state != "pending" and self._said.get(step.name) != step.state:
                self._said[step.name] = step.state
                seconds = f" after {step.seconds:.1f} s" if step.state != "running" and step.seconds is not None else ""
                self._world.console.print(f"    {step.name} [dim]{step.state}{seconds}[/]")

    def _answer(self, view: RewindView) -> None:
        if view.verdict is None or view.step("validate").state != "done" or view.approval is not None:
            return
        if view.verdict.verdict != lifecycle.PASS:
            raise DemoError(
                f"the verdict is {view.verdict.verdict} ({view.verdict.reason}): {dict(view.verdict.counts)}"
            )
        for asked in self._world.api.hitl_pending(self._world.rewind_dag, self._run_id):
            task = task_of(asked)
            self._world.api.hitl_answer(self._world.rewind_dag, self._run_id, task, [APPROVE])
            self._world.console.print(f"    {task} answered over REST: {APPROVE}")


def far(view: RewindView) -> str:
    """Return how far a rewind is."""
    at_work = [step.name for step in view.steps if step.state == RUNNING]
    chunks = f"{view.backfill.chunks_done} of {view.backfill.chunks} chunks" if view.backfill else ""
    backfilled = chunks if "backfill" in at_work else ""
    return ", ".join(filter(None, (*at_work, backfilled, view.waits))) or view.state


def marks(view: RewindView, pipeline: PipelineView) -> object:
    """Return what is different once a rewind has moved. A candidate's position is its way only while it catches up."""
    steps = [(step.name, step.state, step.attempt) for step in view.steps]
    chunks = None if view.backfill is None else (view.backfill.chunks, view.backfill.chunks_done)
    catching_up = view.step("catch_up").state == RUNNING
    position = [job.position for job in pipeline.jobs if job.job_id == view.job_id] if catching_up else []
    return view.state, steps, chunks, position, view.approval


def task_of(asked: Mapping[str, object]) -> str:
    """Return the task that asks a question, as Airflow's list of questions names it."""
    instance = asked.get("task_instance")
    return str(instance["task_id"] if isinstance(instance, dict) else asked["task_id"])
