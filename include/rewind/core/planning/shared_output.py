"""What a pipeline with a shared output may not change, since that holds the answers of all its jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rewind.core import names
from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.core.pipeline import DELTA, Pipeline
from rewind.core.planning.stages import Shape

FIXED = {
    "shared": "output.shared",
    "output_format": "output",
    "output_topic": "output",
    "output_key": "output.key",
    "session_time_zone": "session_time_zone",
}
"""Settings that make the name of a shared output, or its keys: of those the times are texts in the session's zone."""


def read_from(config: Mapping[str, Any], own: str) -> str:
    """Return the topic or table where readers find the answers of a job while it is live.

    Args:
        config: Its frozen settings; those of an older release say nothing of sharing.
        own: Its own output, which for a shared one is a staging that is collected with the job.
    """
    return names.shared_output(config["output_topic"]) if config.get("shared") else own


def refuse(shape: Shape, into: str, pipeline: Pipeline, live: Generation, schema: str, there: Collection[str]) -> None:
    """Check that a plan suits the shared output of its pipeline; harmless for a pipeline without one.

    Args:
        shape: What is planned.
        into: Where a repair's rows would go.
        pipeline: The candidate's pipeline.
        live: The live generation.
        schema: DDL of the columns that the candidate's logic gives.
        there: Names of the topics and tables that exist.

    Raises:
        RefusedError: It does not.
    """
    old = live.declared
    if not (old.shared or pipeline.shared):
        return
    for setting, field in FIXED.items():
        was, wanted = getattr(old, setting), getattr(pipeline, setting)
        if was != wanted:
            problem = f"is {wanted!r}, and {live.job_id} was made with {was!r}: one shared output cannot hold both"
            raise RefusedError(field, problem, "Leave it, or declare another pipeline and deploy that")
    if pipeline.output_format == DELTA and schema != live.output_schema:
        problem = f"transform() gives {schema}, and the shared table has {live.output_schema}"
        raise RefusedError("logic", problem, "Give the same columns, or declare another pipeline and deploy that")
    name = names.shared_output(pipeline.output_topic)
    if name not in there:
        raise RefusedError(
            "output.shared", f"{name} is gone", "Restore it, or declare another pipeline and deploy that"
        )
    if shape.repairs and into == "live":
        # Live's driver is the only one that publishes, and it has published the batches that a repair makes anew.
        problem = f"a repair cannot go to {live.job_id}, whose answers are in {name}"
        raise RefusedError("repair_into", problem, "Repair beside it, or rewind from that point in time")
