"""The view of the state as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from rewind.core import lifecycle
from rewind.core.nights import DRIFTED
from rewind.core.planning.plan import Plan
from rewind.registry.mirrors.proof_log import Proven
from rewind.registry.verdicts import Verdict
from rewind.runtime.drivers.driver_state import Driver
from rewind.views.status import PipelineView, Status
from rewind.views.status_backfill import Backfill
from rewind.views.status_jobs import Job
from rewind.views.status_mirrors import Mirror
from rewind.views.status_nights import last_answer
from rewind.views.status_rewinds import RewindView
from rewind.views.status_steps import StepView

UNKNOWN = "?"
SAMPLE = 5
"""Differences that are shown beside the counts."""
COLOURS = {
    "consistent": "green",
    "drifted": "red",
    "live": "green",
    "alive": "green",
    "done": "green",
    "pass": "green",
    "finished": "green",
    "running": "cyan",
    "candidate": "cyan",
    "active": "cyan",
    "starting": "cyan",
    "backfilling": "cyan",
    "merging": "cyan",
    "waiting": "yellow",
    "standby": "yellow",
    "draining": "yellow",
    "failed": "red",
    "fail": "red",
    "error": "red",
    "dead": "red",
    "orphan": "red",
    "quarantined": "red",
    "damaged": "red",
    "aborted": "magenta",
}

FAILING = ("dead", "quarantined", "waiting")
"""States of a driver in which its last failure says why."""


def page(found: Status) -> RenderableType:
    """Return the whole state."""
    parts: list[RenderableType] = [Text(f"Rewind at {when(found.at)}", style="bold")]
    parts += [Text(problem, style="yellow") for problem in found.problems]
    if not found.pipelines:
        parts.append(Text("No pipeline is declared: add a folder to include/pipelines (README.md says how)."))
    for pipeline in found.pipelines:
        parts += _pipeline(pipeline)
    if found.mirrors:
        parts += [Text(), mirrors_table(found.mirrors)]
    return Group(*parts)


def _pipeline(view: PipelineView) -> list[RenderableType]:
    head = Text.assemble("\n", (view.name, "bold"))
    if view.source_topic:
        head.append(f"  reads {view.source_topic}")
    head.append(f"  live {view.live}, epoch {view.epoch}" if view.live else "  nothing is deployed")
    parts: list[RenderableType] = [head]
    if view.problem:
        parts.append(Text(f"  broken: {view.problem}", style="red"))
    if view.jobs:
        parts.append(jobs_table(view.jobs))
    parts += [Text.assemble("  rewind ", (one.id, "bold"), f" {one.told()}") for one in view.planning]
    for rewind in view.rewinds:
        parts += rewind_parts(rewind)
    if (last := last_answer(view.nights)) is not None:
        parts.append(Text(f"  night    {last.told()}", style="red" if last.state == DRIFTED else ""))
    parts += [Text(f"  garbage  {g.job_id}: {len(g.things)} things, {g.waits}") for g in view.garbage]
    if view.deletions:
        parts.append(Text(f"  deleted  {', '.join(f'{d.kind} {d.name} ({d.result})' for d in view.deletions)}"))
    return parts


def jobs_table(jobs: Iterable[Job]) -> Table:
    """Return generations and repairs as a table."""
    table = Table("job", "state", "driver", "token", "position", "lag", "records/s", "kept until", "output", box=None)
    for job in jobs:
        grace = when(job.grace_until) if job.grace_until and job.state == lifecycle.STANDBY else ""
        cells = (
            str(job.driver.token or ""),
            position(job.position),
            count(job.lag),
            count(job.rate),
            grace,
            job.output_topic,
        )
        table.add_row(job.job_id, coloured(job.state), _driver(job.driver), *cells)
        if job.note:
            table.add_row("", Text(job.note, style="yellow"))
        _add_cause(table, job.driver)
    return table


def mirrors_table(mirrors: Iterable[Mirror]) -> Table:
    """Return the mirrors as a table."""
    table = Table("mirror", "driver", "position", "lag", "records", "version", "last commit", "proof", box=None)
    for m in mirrors:
        age = UNKNOWN if m.age_seconds is None else f"{m.age_seconds:.0f} s ago"
        version = "" if m.version is None else str(m.version)
        numbers = (position(m.position), count(m.lag), count(m.records), version, age)
        table.add_row(m.topic, _driver(m.driver), *numbers, proof(m.proof))
        if m.note:
            table.add_row("", Text(m.note, style="yellow"))
        for line in m.proof.told[1:] if m.proof else ():
            table.add_row("", Text(line, style="red"))
        if m.driver.paused:
            table.add_row("", Text(m.driver.paused, style="yellow"))
        _add_cause(table, m.driver)
    return table


def proof(made: Proven | None) -> RenderableType:
    """Return what the newest proof of a mirror found, and when."""
    return Text("none yet") if made is None else Text.assemble(coloured(made.verdict), f" {when(made.at)}")


def rewind_parts(rewind: RewindView) -> list[RenderableType]:
    """Return one rewind: all of it while it is active, a line when it has ended."""
    head = Text.assemble("  rewind ", (rewind.id, "bold"), " ", coloured(rewind.state))
    head.append(f"  {rewind.plan.kind} to {rewind.job_id}, plan {rewind.plan.id}, since {when(rewind.created_at)}")
    if rewind.reason:
        head.append(f"  ({rewind.reason})")
    parts: list[RenderableType] = [head]
    if rewind.verdict is not None:
        parts.append(Text.assemble("    verdict ", coloured(rewind.verdict.verdict), f"  {came_out(rewind.verdict)}"))
    if rewind.observed is not None:
        parts.append(Text(f"    {rewind.observed.told()}", style="red" if rewind.observed.differences else ""))
    if rewind.state == lifecycle.ACTIVE:
        parts.append(steps_table(rewind.steps))
        parts += [] if rewind.backfill is None else [backfill_line(rewind.backfill)]
        parts += [Text(f"    waits: {rewind.waits}", style="yellow")] if rewind.waits else []
    return parts


def steps_table(steps: Iterable[StepView]) -> Table:
    """Return the steps of a rewind as a table."""
    table = Table("    step", "state", "attempt", "seconds", "CPU seconds", "driver", box=None)
    for step in steps:
        numbers = (str(step.attempt or ""), _number(step.seconds), _number(step.cpu_seconds))
        table.add_row(f"    {step.name}", coloured(step.state), *numbers, step.driver)
    return table


def backfill_line(backfill: Backfill) -> RenderableType:
    """Return a bar with how far a backfill has come."""
    line = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=max(backfill.offsets, 1), completed=backfill.offsets_done, width=30)
    left = "" if backfill.seconds_left is None else f", about {backfill.seconds_left:.0f} s left"
    limit = f", limited to {backfill.records_per_second}/s" if backfill.records_per_second else ""
    state = " PAUSED" if backfill.paused else ""
    text = f"{backfill.chunks_done}/{backfill.chunks} chunks, {count(backfill.records_done)} records"
    line.add_row("    backfill", bar, f"{text}, {count(backfill.rate)}/s{left}{limit}{state}")
    return line


def verdict_parts(plan: Plan, verdict: Verdict) -> list[RenderableType]:
    """Return what a person decides about: what was compared, and what came out, class by class."""
    table = Table("class", Column("rows", justify="right"), box=None)
    for name, number in verdict.counts.items():
        table.add_row(name, count(number))
    head = Text.assemble("verdict ", coloured(verdict.verdict), f"  {verdict.reason}")
    what = f"{plan.job_id} against {plan.live_job_id}, from {position(verdict.floor)} up to {position(verdict.ceiling)}"
    if verdict.verdict == lifecycle.UNCOMPARED:
        return [head]
    return [head, Text(what), table, *(Text(f"differs {row}") for row in verdict.sample[:SAMPLE])]


def came_out(verdict: Verdict) -> str:
    """Return on one line what a verdict found, and of one without an answer why it has none."""
    if verdict.verdict == lifecycle.UNCOMPARED:
        return verdict.reason
    why = verdict.reason if verdict.verdict == lifecycle.ERROR else ""
    return "; ".join(filter(None, (counts(verdict.counts), why)))


def counts(found: Mapping[str, int]) -> str:
    """Return the counts of a verdict on one line."""
    return ", ".join(f"{name} {count(number)}" for name, number in found.items())


def position(vector: Mapping[int, int]) -> str:
    """Return a position on one line."""
    return " ".join(f"{p}:{vector[p]}" for p in sorted(vector))


def count(number: float | None) -> str:
    """Return a number with its thousands apart, a question mark for an unknown one."""
    return UNKNOWN if number is None else f"{number:,.0f}" if isinstance(number, float) else f"{number:,}"


def when(instant: datetime) -> str:
    """Return an instant of the registry."""
    return f"{instant:%Y-%m-%d %H:%M:%S}Z"


def coloured(word: str) -> Text:
    """Return a state in its colour."""
    return Text(word, style=COLOURS.get(word, ""))


def _add_cause(table: Table, driver: Driver) -> None:
    if driver.cause and driver.state in FAILING:
        table.add_row("", Text(driver.cause, style="red"))


def _driver(driver: Driver) -> Text:
    text = coloured(driver.state)
    if driver.step:
        text.append(f", step {driver.step}")
    if driver.pid is not None:
        text.append(f" pid {driver.pid}")
    if driver.failures:
        text.append(f", {driver.failures} failures")
    return text


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,.1f}"
