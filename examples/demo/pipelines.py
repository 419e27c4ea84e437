"""The demo's own copy of the pipeline: first with a bug, later fixed."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from examples.demo.visits import TOUCHED_PERCENT

ORIGINAL = "visits_converter"

_MENDED = 'F.col("page").alias("visited_page")'
_BUG = f"""F.when(
            F.regexp_extract("event_id", "[0-9]+$", 0).cast("bigint") % 100 < {TOUCHED_PERCENT}, F.lower("page")
        )
        .otherwise(F.col("page"))
        .alias("visited_page")"""

RULE = (
    "live.visited_page = lower(candidate.visited_page) "
    "and cast(regexp_extract(candidate.event_identifier, '[0-9]+$', 0) as bigint) % 100 "
    f"< {TOUCHED_PERCENT}"
)
"""How the fixed output may differ: it says of which records, too, so that another change would show."""


def copy_with_bug(source: Path, target: Path, name: str, topic: str, output: str) -> None:
    """Copy the declared pipeline to the demo's folder under a name and with the bug in its logic.

    Args:
        source: Folder of the declared pipelines.
        target: Folder of the demo's pipelines; what an earlier demo left there goes.
        name: Name of the copy.
        topic: Its source topic.
        output: Base name of its output.
    """
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / ORIGINAL, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(source / "__init__.py", target / "__init__.py")
    declared = target / name / "pipeline.yaml"
    body = yaml.safe_load(declared.read_text())
    body["source"]["topic"], body["output"]["topic"] = topic, output
    # Two cores carry the stack, the load and three streams: fewer, larger batches leave room for the steps.
    body["stream"], body["gates"] = {"trigger": "PT4S"}, {"lag_records": 15_000}
    body["compare"] = {"expected": [{"column": "visited_page", "rule": RULE}]}
    declared.write_text(yaml.safe_dump(body, sort_keys=False))
    logic = target / name / "logic.py"
    logic.write_text(with_bug(logic.read_text()))


def install_mended(source: Path, target: Path, name: str) -> None:
    """Put the logic as it should be into the demo's copy, at once."""
    draft = target / name / ".logic.draft"
    shutil.copyfile(source / ORIGINAL / "logic.py", draft)
    draft.replace(target / name / "logic.py")


def with_bug(logic: str) -> str:
    """Return the logic with its bug: the page of some records in small letters.

    Raises:
        ValueError: The logic is not the one that the bug is made for.
    """
    if logic.count(_MENDED) != 1:
        raise ValueError(f"the logic has not exactly one {_MENDED}")
    return logic.replace(_MENDED, _BUG)
