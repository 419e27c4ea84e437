"""Follow a rewind with a live display, and answer its question."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from rewind.cli import render
from rewind.control.status import Status
from rewind.control.status_rewinds import RewindView
from rewind.core import lifecycle
from rewind.core.errors import RetryError
from rewind.local.demo.waiting import DemoError
from rewind.local.demo.world import World

LOOK_SECONDS = 1.0
APPROVE = "Approve"


class Follower:
    """Follows one rewind to its end."""

    def __init__(self, world: World, run_id: str, rewind_id: str) -> None:
        """Keep what to follow."""
        self._world, self._run_id, self._rewind_id = world, run_id, rewind_id
        self._said: dict[str, str] = {}

    def to_the_end(self, seconds: float) -> RewindView:
        """Show the rewind until it has ended, approving a passed verdict, and return it.

        Raises:
            DemoError: It failed, its verdict is not a pass, or it did not end in time.
        """
        deadline = time.monotonic() + seconds
        with Live(console=self._world.console, auto_refresh=False, transient=True) as live:
            while time.monotonic() < deadline:
                ended = self._look(live)
                if ended is not None:
                    return ended
                time.sleep(LOOK_SECONDS)
        raise DemoError(f"rewind {self._rewind_id} did not end within {seconds:.0f} s")

    def _look(self, live: Live) -> RewindView | None:
        try:
            found = self._world.status()
            done = self._world.run_ended(self._world.rewind_dag, self._run_id)
        except RetryError:
            return None
        view = next((r for r in found.pipeline(self._world.names.pipeline).rewinds if r.id == self._rewind_id), None)
        live.update(self._page(found, view), refresh=self._world.console.is_terminal)
        if view is None:
            return None
        self._say(view)
        self._answer(view)
        return view if done and view.state == lifecycle.FINISHED else None

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


def task_of(asked: Mapping[str, object]) -> str:
    """Return the task that asks a question, as Airflow's list of questions names it."""
    instance = asked.get("task_instance")
    return str(instance["task_id"] if isinstance(instance, dict) else asked["task_id"])
