"""What the demo leaves: `summary.json`, and a report for whoever watched."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from examples.demo.proof import Proof
from examples.demo.scenario import Story
from examples.demo.world import World
from rewind.cli import render
from rewind.core import names
from rewind.runtime.drivers import supervise
from rewind.views.pointer import Resolved
from rewind.views.status import PipelineView
from rewind.views.status_rewinds import RewindView

DELETED = "deleted"


def write(world: World, story: Story, pipeline: PipelineView | None) -> Path:
    """Write `summary.json` into the demo's folder and return its path; what a failed demo lacks is null."""
    path = world.folder / "summary.json"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(body(world, story, pipeline), indent=2) + "\n")
    draft.replace(path)
    return path


def body(world: World, story: Story, pipeline: PipelineView | None) -> dict[str, Any]:
    """Return the content of `summary.json`."""
    rewind, plan, topic = story.rewind, story.plan, world.names.topic
    span = plan and {"start": _offsets(topic, plan.start), "end": _offsets(topic, plan.end)}
    handoff = rewind.handoff if rewind else None
    verdict = rewind.verdict if rewind else None
    return {
        "bootstrap": world.settings.bootstrap,
        "pipeline": world.names.pipeline,
        "source_topic": topic,
        "mirror_path": str(names.inside(world.settings.mirrors, topic, "topic")),
        "rewind_id": story.rewind_id,
        "range": span,
        "handoff": None if handoff is None else _offsets(topic, handoff),
        "live_before": _live(world, story.live_before),
        "live_after": _live(world, story.live_after),
        "verdict": verdict.verdict if verdict else None,
        "counts": dict(verdict.counts) if verdict else {},
        "steps": _steps(rewind),
        "deleted": _deleted(pipeline),
        "seconds": round(time.monotonic() - story.began, 1),
    }


def tell(world: World, story: Story, pipeline: PipelineView | None) -> None:
    """Print what happened."""
    console = world.console
    console.print(_parts(story))
    if story.rewind is not None:
        console.print(_step_table(story.rewind))
        _tell_verdict(console, story.rewind, story.proof)
    if story.killing is not None:
        k = story.killing
        console.print(
            f"Killed: the driver of {k.job_id}; one successor after {k.seconds} s (token {k.token_before} -> "
            f"{k.token_after}), {k.witnesses} of its records show the old code"
        )
    if story.gap is not None:
        console.print(
            f"Live's longest gap: {story.gap} s, the kill included; {story.gap_in_rewind} s during the rewind"
        )
    _tell_switch(console, story, pipeline)
    console.print(f"Airflow: {world.stack.airflow_url}  user {world.stack.user}  password {world.stack.password}")


def _tell_verdict(console: Console, rewind: RewindView, proof: Proof | None) -> None:
    if rewind.verdict is not None:
        console.print(f"Verdict: {rewind.verdict.verdict}  {render.came_out(rewind.verdict)}")
    if proof is None:
        return
    found = proof.findings
    console.print(
        f"Planted: {proof.planted:,} records, at least {proof.slowest:,} in each second of the flow; "
        f"{proof.planted_expected:,} that the bug touched within the horizon"
    )
    console.print(
        f"Separate reader: {found.good:,} good records, {found.tombstones:,} tombstones, {found.bad:,} dead letters; "
        f"{render.counts(found.counts)} ({found.repeats:,} exact repeats removed)"
    )
    for kind, sample in found.sample.items():
        console.print(f"  {kind}: {'; '.join(sample)}", markup=False)


def _tell_switch(console: Console, story: Story, pipeline: PipelineView | None) -> None:
    old, new = story.live_before, story.live_after
    if old is not None and new is not None:
        console.print(
            f"Switched: {old.job_id} (epoch {old.epoch}) -> {new.job_id} (epoch {new.epoch}), {new.output_topic}"
        )
    gone = ", ".join(f"{thing['kind']} {thing['name']}" for thing in _deleted(pipeline))
    if gone:
        console.print(f"Deleted: {gone}")


def _parts(story: Story) -> Table:
    table = Table("part of the demo", "seconds")
    for name, seconds in story.seconds.items():
        table.add_row(name, f"{seconds:.1f}")
    table.add_row("in all", f"{time.monotonic() - story.began:.1f}")
    return table


def _step_table(rewind: RewindView) -> Table:
    table = Table("step of the rewind", "state", "wall seconds", "CPU seconds")
    for step in rewind.steps:
        wall, cpu = (("" if n is None else f"{n:.1f}") for n in (step.seconds, step.cpu_seconds))
        table.add_row(step.name, step.state, wall, cpu)
    return table


def _live(world: World, found: Resolved | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "job_id": found.job_id,
        "output_topic": found.output_topic,
        "dead_letter_topic": found.dead_letter_topic,
        "checkpoint": str(supervise.checkpoint_folder(world.settings, found.job_id)),
        "epoch": found.epoch,
    }


def _steps(rewind: RewindView | None) -> list[dict[str, Any]]:
    return [{"name": s.name, "state": s.state, "seconds": s.seconds} for s in rewind.steps] if rewind else []


def _deleted(pipeline: PipelineView | None) -> list[dict[str, str]]:
    lines = pipeline.deletions if pipeline else ()
    return [{"kind": line.kind, "name": line.name} for line in lines if line.result == DELETED]


def _offsets(topic: str, vector: dict[int, int]) -> dict[str, dict[str, int]]:
    return {topic: {str(p): vector[p] for p in sorted(vector)}}
