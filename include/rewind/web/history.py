"""All rewinds and nightly replays of all pipelines."""

from __future__ import annotations

from typing import Any

from rewind.core import comparing, lifecycle
from rewind.core.settings import Settings
from rewind.registry import audit, nightly_replays, verdicts
from rewind.registry.rewinds import Rewind
from rewind.registry.snapshot import snapshot
from rewind.registry.verdicts import Approval, Verdict
from rewind.runtime import evidence
from rewind.views import rewind_rows
from rewind.views.status import Status
from rewind.views.status_nights import night_of
from rewind.web import files
from rewind.web.wire import wire

NEWEST = 500


def history(settings: Settings, found: Status) -> dict[str, Any]:
    """Return rewinds and nights of a state's pipelines with what was found, and who did what, newest first."""
    names = [view.name for view in found.pipelines]
    with snapshot(settings.registry_url) as connection:
        newest = rewind_rows.newest(connection, NEWEST, names)
        judged = verdicts.newest_of(connection, [rewind.id for rewind in newest])
        newest_nights = nightly_replays.newest(connection, NEWEST, names)
        acts = audit.read(connection, NEWEST, names)
    lines = [_line(settings, rewind, *judged.get(rewind.id, (None, None))) for rewind in newest]
    replayed = [night_of(night) for night in newest_nights]
    body = {"at": found.at, "problems": found.problems, "rewinds": lines, "nights": replayed, "acts": acts}
    body["newest"] = NEWEST
    return dict(wire(body))


def _line(settings: Settings, rewind: Rewind, verdict: Verdict | None, approval: Approval | None) -> dict[str, Any]:
    return {
        "rewind": rewind,
        "verdict": "" if verdict is None else verdict.verdict,
        "told": comparing.NOTHING if verdict is not None and verdict.verdict == lifecycle.UNCOMPARED else "",
        "counts": {} if verdict is None else verdict.counts,
        "evidence": len(files.listed(evidence.folder_of(settings, rewind.id))),
        "answer": "" if approval is None else f"{approval.answer} by {approval.person}",
    }
