"""Load declared pipelines: folders with `pipeline.yaml` and `logic.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from rewind.core import names, times
from rewind.core.errors import RefusedError, RewindError
from rewind.core.pipeline import (
    DELTA,
    INSTANT,
    KAFKA,
    KEEP,
    TOLERANCE,
    UNBOUNDED,
    UNORDERED,
    VOLATILE,
    ColumnRule,
    ExpectedChange,
    Pipeline,
    RowRule,
)
from rewind.declared import expectations, pipeline_lines
from rewind.declared.json_schema import check
from rewind.declared.pipeline_schema import OVERRIDES, SCHEMA

PARSED_KEPT = 1_000


@dataclass(frozen=True)
class Broken:
    """A pipeline folder that cannot be used, and why."""

    name: str
    problem: str


def load_all(folder: Path) -> tuple[list[Pipeline], list[Broken]]:
    """Return the pipelines of a folder, and those that are broken: one takes away only itself."""
    good: list[Pipeline] = []
    broken: list[Broken] = []
    for path in sorted(folder.glob("*/pipeline.yaml")):
        try:
            good.append(load(folder, path.parent.name))
        except RewindError as error:
            broken.append(Broken(path.parent.name, str(error)))
    return good, broken


def load(folder: Path, name: str) -> Pipeline:
    """Return one declared pipeline.

    Raises:
        RefusedError: There is none, or its YAML or its expectations break their schema; the field is named.
    """
    path = names.inside(folder, name, "pipeline") / "pipeline.yaml"
    if "." in name:
        names.checked_new([name], _there(folder), "pipeline")
    if not path.is_file():
        raise RefusedError("pipeline", f"{name!r} is unknown", f"Declared are {_there(folder)}")
    if not (path.parent / "logic.py").is_file():
        raise RefusedError("pipeline", f"{name} has no logic.py", "Add it beside pipeline.yaml")
    return replace(_parsed(name, _text(path)), expectations=expectations.read(path.parent))


def _there(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/pipeline.yaml"))


# Who watches asks for the same files again and again.
@lru_cache(maxsize=PARSED_KEPT)
def _parsed(name: str, text: str) -> Pipeline:
    body = _loaded(name, text)
    try:
        return parse(name, body)
    except RefusedError as refused:
        raise pipeline_lines.located(name, text, refused) from None


def parse(name: str, body: Any) -> Pipeline:
    """Return the pipeline that the parsed YAML declares.

    Raises:
        RefusedError: The YAML breaks the schema, or a name or duration in it is illegal.
    """
    check(body, SCHEMA, "pipeline.yaml")
    names.checked_base(name, "pipeline")
    if "." in name:
        cure = "Use '_' or '-': the folder is a Python package too"
        raise RefusedError("pipeline", f"{name!r} has a '.'", cure)
    names.checked(f"{names.mirror_owner(body['source']['topic'])}.lock", "source.topic")
    source, output, stream = body["source"], body["output"], body.get("stream", {})
    approval = body.get("approval", {})
    trigger = times.parse_duration(stream.get("trigger", "PT1S"), "stream.trigger").total_seconds()
    form, base = (DELTA, output["table"]) if "table" in output else (KAFKA, output["topic"])
    defaults = Pipeline(name, source["topic"], source["schema"], base)
    expected = body.get("compare", {}).get("expected", [])
    return Pipeline(
        name=name,
        source_topic=names.checked(source["topic"], "source.topic"),
        schema=source["schema"],
        output_topic=names.checked_base(base, "output.table" if form == DELTA else "output.topic"),
        output_format=form,
        required=tuple(source.get("required", ())),
        transactional=source.get("transactional", False),
        isolation=source.get("isolation", defaults.isolation),
        output_key=tuple(output.get("key", ())),
        session_time_zone=body.get("session_time_zone", defaults.session_time_zone),
        **_stateful(body),
        **_shared(body["output"], body.get("stateful", False)),
        several_rows=body.get("several_rows", False),
        functions=tuple(body.get("functions", ())),
        trigger_seconds=trigger,
        max_offsets=stream.get("max_offsets", defaults.max_offsets),
        chunk_records=body.get("backfill", {}).get("chunk_records", defaults.chunk_records),
        lag_gate=body.get("gates", {}).get("lag_records", defaults.lag_gate),
        late_share=float(body.get("gates", {}).get("late_share", defaults.late_share)),
        null_share=float(body.get("gates", {}).get("null_share", defaults.null_share)),
        four_eyes=approval.get("four_eyes", False),
        auto_approve_by=tuple(approval["auto_approve_by"]) if "auto_approve_by" in approval else None,
        **_nightly(body),
        expected=tuple(ExpectedChange(e["column"], e.get("rule", "")) for e in expected),
        rules=_rules(body.get("compare", {}), output.get("key", ())),
        row_rules=_row_rules(body.get("compare", {}).get("rows", ())),
    )


def _nightly(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sample of nightly replays.

    Raises:
        RefusedError: A pipeline with state declares one: its results may count records of any key and partition.
    """
    declared = body.get("nightly", {})
    if declared and body.get("stateful", False):
        raise RefusedError("pipeline.yaml.nightly", "is only for a pipeline without state", "Leave it out")
    return {
        "nightly_partitions": tuple(sorted(declared.get("partitions", ()))),
        "nightly_share": float(declared.get("share", 1.0)),
    }


def _rules(compare: Mapping[str, Any], key: Sequence[str]) -> tuple[ColumnRule, ...]:
    """Return the rules of columns.

    Raises:
        RefusedError: A column has two, or is of the key: rows are told apart by it.
    """
    found = [ColumnRule(name, kind) for kind in (VOLATILE, UNORDERED, INSTANT) for name in compare.get(kind, ())]
    found += [
        ColumnRule(rule["column"], TOLERANCE, float(rule.get("relative", 0)), float(rule.get("absolute", 0)))
        for rule in compare.get(TOLERANCE, ())
    ]
    named = [rule.column for rule in found] + [change["column"] for change in compare.get("expected", ())]
    twice = sorted({name for name in named if named.count(name) > 1})
    if twice:
        raise RefusedError("pipeline.yaml.compare", f"{twice[0]} has more than one rule", "Leave it one")
    for rule in found:
        if rule.column in key:
            problem = f"{rule.column} is of the key, which tells rows apart"
            raise RefusedError(f"pipeline.yaml.compare.{rule.kind}", problem, "Take it out of one of both")
    return tuple(found)


def _row_rules(declared: Sequence[Mapping[str, Any]]) -> tuple[RowRule, ...]:
    """Return the rules of rows.

    Raises:
        RefusedError: One stands twice, or no count can satisfy it.
    """
    found = tuple(RowRule(rule["change"], rule["rule"], rule.get("least", 0), rule.get("most")) for rule in declared)
    for number, rule in enumerate(found):
        field = f"pipeline.yaml.compare.rows.{number}"
        if rule.label in [other.label for other in found[:number]]:
            raise RefusedError(field, f"{rule.label} stands twice", "Leave it once")
        if rule.most is not None and rule.most < rule.least:
            raise RefusedError(
                field, f"most {rule.most} is below least {rule.least}", "Swap them: the end must be after the start"
            )
    return found


_OF_STATEFUL = ("state_horizon", "closes_at", "output.key", "output.starts", "output.ends")


def _stateful(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a stateful pipeline, all or none of which are declared.

    Raises:
        RefusedError: Some are missing, or a stateless pipeline declares one.
    """
    output, wanted = body["output"], body.get("stateful", False)
    declared = {name: (output if "." in name else body).get(name.rpartition(".")[2]) for name in _OF_STATEFUL}
    declared["output.mode"] = output.get("mode")
    if not wanted:
        alien = [name for name, value in declared.items() if value and name != "output.key"]
        if alien:
            problem = "is only for a pipeline with state"
            raise RefusedError(f"pipeline.yaml.{alien[0]}", problem, "Declare stateful: true")
        return {}
    missing = [name for name in _OF_STATEFUL if not declared[name]]
    if missing:
        where = "docs/pipeline-yaml.md explains it"
        raise RefusedError(f"pipeline.yaml.{missing[0]}", "is required of a stateful pipeline", where)
    if body.get("several_rows"):
        problem = "numbers the rows of one record, and a stateful pipeline's rows are matched by their key"
        raise RefusedError("pipeline.yaml.several_rows", problem, "Leave it out")
    if body["state_horizon"] != UNBOUNDED:
        times.parse_duration(body["state_horizon"], "state_horizon")
    return {
        "stateful": True,
        "state_horizon": body["state_horizon"],
        "closes_at": body["closes_at"],
        "output_mode": output.get("mode", "append"),
        "result_starts": output["starts"],
        "result_ends": output["ends"],
    }


def _shared(output: Mapping[str, Any], stateful: bool) -> dict[str, Any]:
    """Return the fields of a shared output.

    Raises:
        RefusedError: The rows of the pipeline are no versions of keys, or only a detail of it is declared.
    """
    shared = output.get("shared", False)
    if shared and not stateful:
        problem = "merges versions of keys, which only a pipeline with state writes"
        raise RefusedError(
            "pipeline.yaml.output.shared", problem, "Declare stateful: true, with output.key, or do without"
        )
    if "vanished" in output and not shared:
        raise RefusedError(
            "pipeline.yaml.output.vanished", "is only for a shared output", "Declare output.shared: true"
        )
    return {"shared": shared, "vanished": output.get("vanished", KEEP)}


def overridden(pipeline: Pipeline, overrides: Mapping[str, Any]) -> Pipeline:
    """Return the pipeline with some settings replaced.

    Raises:
        RefusedError: A setting that may not be overridden, or a bad value.
    """
    check(dict(overrides), OVERRIDES, "overrides")
    if "vanished" in overrides and not pipeline.shared:
        raise RefusedError("overrides.vanished", f"{pipeline.name} has no shared output", "Leave it out")
    return Pipeline.from_frozen(pipeline.frozen() | dict(overrides))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (ValueError, OSError) as error:
        raise pipeline_lines.unreadable(path.parent.name, "", error) from None


def _loaded(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    # A date that does not exist, and too deep a nesting come as themselves.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise pipeline_lines.unreadable(name, text, error) from None
