"""What is written down of a nightly replay: its evidence, and its row."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from rewind.core import nights as rules
from rewind.core.crash import side_effect
from rewind.core.horizon import Frontier
from rewind.core.model import Generation
from rewind.core.offsets import Ranges, ends, starts
from rewind.core.settings import Settings
from rewind.registry import nightly_replays
from rewind.registry.database import now, writing
from rewind.registry.nightly_replays import Replayed
from rewind.runtime import evidence
from rewind.steps.compare.findings import Found

log = logging.getLogger(__name__)


@dataclass
class Answer:
    """What a night came to; until all is answered it is an error.

    Attributes:
        state: One of `core.nights`.
        reason: Why it is not consistent.
        compared: Source offsets that were compared.
        found: What was found in them.
        frontier: How far both outputs are compared.
    """

    state: str = rules.ERROR
    reason: str = "it was ended before it was answered"
    compared: Ranges = field(default_factory=dict)
    found: Found = field(default_factory=lambda: Found({}))
    frontier: Frontier | None = None


def store(settings: Settings, live: Generation, recorded: Replayed, answer: Answer) -> Replayed:
    """Write a night's evidence, then record how it ended, and return what was recorded."""
    found = answer.found
    about = {
        "night": recorded.label,
        "pipeline": recorded.pipeline,
        "live": live.job_id,
        "replay": recorded.replay_id,
        "topic": live.source_topic,
        "output": live.output_topic,
        "replayed": recorded.sample.told(),
        "from": f"{recorded.start_at}Z",
        "to": f"{recorded.end_at}Z",
        "run": recorded.run_id,
    }
    body: dict[str, Any] = {
        "about": about,
        "attempt": recorded.attempt,
        "at": now(),
        "verdict": answer.state,
        "reason": answer.reason,
        "counts": found.counts,
        "fields": found.fields,
        "sample": found.sample,
        "floor": starts(answer.compared),
        "ceiling": ends(answer.compared),
        "parameters": recorded.sample.to_json(),
    }
    evidence.write(settings, recorded.replay_id, recorded.report, body)
    with side_effect("night.finish"), writing(settings.registry_url) as connection:
        nightly_replays.finish(
            connection, recorded.replay_id, answer.state, answer.reason, found.counts, found.fields, answer.frontier
        )
        told = nightly_replays.read(connection, recorded.replay_id)
    level = logging.INFO if answer.state != rules.DRIFTED else logging.ERROR
    log.log(level, "%s %s: %s %s", told.label, told.state, told.reason, json.dumps(dict(told.counts)))
    return told
