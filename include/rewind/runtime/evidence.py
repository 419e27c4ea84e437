"""The evidence of a rewind: a folder of its own, each check as JSON and as one page that needs nothing beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewind.core import names
from rewind.core.crash import side_effect
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import verdicts
from rewind.registry.snapshot import snapshot
from rewind.runtime import evidence_page

DOCS = "data-docs-"
"""How the folders begin that hold pages of Great Expectations; the number of the attempt follows."""


def folder_of(settings: Settings, rewind_id: str) -> Path:
    """Return the folder of a rewind's evidence, which may be missing.

    Raises:
        RefusedError: The id is no legal name, or the folder is a link.
    """
    return names.inside(settings.evidence, rewind_id, "rewind_id")


def about(rewind_id: str, plan: Plan) -> dict[str, Any]:
    """Return what was compared, in the words of the plan."""
    return {
        "rewind_id": rewind_id,
        "pipeline": plan.request.pipeline,
        "kind": plan.kind,
        "plan_id": plan.id,
        "live": plan.live_job_id,
        "candidate": plan.job_id,
        "topic": plan.topic,
        "output": plan.output_topic,
        "why": plan.request.reason,
        "compare": plan.request.compare,
    }


def write(settings: Settings, rewind_id: str, name: str, body: Mapping[str, Any]) -> None:
    """Write one check of a rewind as `<name>.json` and `<name>.html`; again, the same files."""
    folder = folder_of(settings, rewind_id)
    text = json.dumps(body, indent=1, sort_keys=True, default=str)
    with side_effect("evidence.write"):
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / f"{name}.json", text)
        _replace(folder / f"{name}.html", evidence_page.page(json.loads(text), None))


def answered(settings: Settings, rewind_id: str) -> None:
    """Write the answer of a person into the page of the newest verdict; without a verdict, or its page, nothing.

    Raises:
        RetryError: The registry cannot be read.
        OSError: The page cannot be written.
    """
    with snapshot(settings.registry_url) as connection:
        verdict, given = verdicts.newest(connection, rewind_id), verdicts.approval(connection, rewind_id)
    if verdict is None or given is None:
        return
    source = folder_of(settings, rewind_id) / f"verdict-{verdict.attempt}.json"
    if source.is_file():
        _replace(source.with_suffix(".html"), evidence_page.page(json.loads(source.read_text()), given))


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}")
    part.write_text(text)
    part.replace(path)
