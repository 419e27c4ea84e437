"""Two rewinds, or two nights, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rewind.core.settings import Settings
from rewind.registry import nightly_replays, rewinds
from rewind.registry.nightly_replays import Replayed
from rewind.registry.rewinds import Rewind
from rewind.registry.snapshot import snapshot
from rewind.runtime import evidence
from rewind.views.status_rewinds import Rewinds, RewindView
from rewind.web import files
from rewind.web.state import State
from rewind.web.wire import wire


def compare_page(settings: Settings, state: State, ids: Sequence[str]) -> dict[str, Any]:
    """Return what the page that compares rewinds, or nights, shows.

    Raises:
        RefusedError: There is none of one of the ids.
    """
    with snapshot(settings.registry_url) as connection:
        of_nights = [night for replay_id in ids if (night := nightly_replays.named(connection, replay_id)) is not None]
        of_rewinds = [] if len(of_nights) == len(ids) else [rewinds.read(connection, rewind_id) for rewind_id in ids]
    return _rewinds(settings, state, of_rewinds) if of_rewinds else _nights(settings, state, of_nights)


def _rewinds(settings: Settings, state: State, of_rewinds: Sequence[Rewind]) -> dict[str, Any]:
    pipelines = [rewind.pipeline for rewind in of_rewinds]
    found = [state.look(name) for name in pipelines]
    with snapshot(settings.registry_url) as connection:
        held = [Rewinds(connection, [one], look.at) for one, look in zip(of_rewinds, found, strict=True)]
    jobs = {name: look.pipeline(name).jobs for look, name in zip(found, pipelines, strict=True)}
    views = [one.views(jobs)[name][0] for one, name in zip(held, pipelines, strict=True)]
    body = {
        "at": found[0].at,
        "problems": found[0].problems,
        "page": "rewind",
        "sides": [{"id": view.id, "pipeline": name} for view, name in zip(views, pipelines, strict=True)],
        "lines": _lines([_facts(view) for view in views]),
        "evidence": {view.id: files.listed(evidence.folder_of(settings, view.id)) for view in views},
    }
    return dict(wire(body))


def _nights(settings: Settings, state: State, of_nights: Sequence[Replayed]) -> dict[str, Any]:
    found = state.look()
    body = {
        "at": found.at,
        "problems": found.problems,
        "page": "",
        "sides": [{"id": night.replay_id, "pipeline": night.pipeline} for night in of_nights],
        "lines": _lines([_facts_of_night(night) for night in of_nights]),
        "evidence": {n.replay_id: files.listed(evidence.folder_of(settings, n.replay_id)) for n in of_nights},
    }
    return dict(wire(body))


def _facts_of_night(night: Replayed) -> list[tuple[str, str, Any]]:
    names = ("label", "state", "reason", "job_id", "run_id", "attempt", "start_at", "end_at", "offsets", "ended_at")
    found = [("night", name, getattr(night, name)) for name in names]
    found.append(("night", "replayed", night.sample.told()))
    found += [("offsets", f"partition {p}", f"{r.start} to {r.end}") for p, r in sorted(night.ranges.items())]
    found += [("rows", name, count) for name, count in night.counts.items()]
    return found + [(kind, name, n) for kind, fields in night.fields.items() for name, n in fields.items()]


def _lines(sides: Sequence[Sequence[tuple[str, str, Any]]]) -> list[dict[str, Any]]:
    """Return what is compared, a line each: its section, its name, and one value for each side; None for none."""
    found: dict[tuple[str, str], list[Any]] = {}
    for place, facts in enumerate(sides):
        for section, name, value in facts:
            found.setdefault((section, name), [None] * len(sides))[place] = value
    return [{"section": section, "name": name, "values": values} for (section, name), values in found.items()]


def _facts(view: RewindView) -> list[tuple[str, str, Any]]:
    plan, verdict = view.plan, view.verdict
    names = ("kind", "job_id", "live_job_id", "start", "end", "records", "bytes", "chunks", "mirror_version", "bundle")
    found = [("rewind", name, getattr(view, name)) for name in ("state", "reason", "created_at", "ended_at", "handoff")]
    found += [("plan", name, getattr(plan, name)) for name in names]
    found += [("config", name, value) for name, value in plan.config.items()]
    found += [("changed", change.what, f"{change.live} → {change.candidate}") for change in plan.differences]
    found += [("seconds", step.name, step.seconds) for step in view.steps]
    found += [("CPU seconds", step.name, step.cpu_seconds) for step in view.steps if step.cpu_seconds is not None]
    if verdict is not None:
        found += [("verdict", name, getattr(verdict, name)) for name in ("verdict", "reason", "floor", "ceiling")]
        found += [("rows", name, count) for name, count in verdict.counts.items()]
    if view.approval is not None:
        found.append(("verdict", "answer", f"{view.approval.answer} by {view.approval.person}"))
    return found
