"""The names that others rely on stay: commands, JSON, metrics, tables, forms, side effects, what a driver is given."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from rewind.cli import completion
from rewind.cli.main import parser
from rewind.core.pipeline import Pipeline
from rewind.core.planning.plan import Plan
from rewind.declared import forms, pipeline_schema
from rewind.registry import schema
from rewind.views.metrics import METRICS
from rewind.views.status import Status
from tests.support import outside


def commands() -> Iterator[str]:
    for path, command in completion._parsers(parser(), ""):
        yield f"command {path or '/'}"
        for action in command._actions:
            if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
                names = "/".join(action.option_strings) or str(action.metavar or action.dest)
                yield f"command {path} {names} nargs={action.nargs} choices={action.choices} default={action.default}"


def metrics() -> Iterator[str]:
    return (f"metric {metric.kind} {metric.name}" for metric in METRICS)


def tables() -> Iterator[str]:
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        for table in schema.metadata.sorted_tables:
            for made in (CreateTable(table), *(CreateIndex(index) for index in table.indexes)):
                lines = str(made.compile(dialect=dialect)).splitlines()
                yield from (f"table {dialect.name} {table.name}: {line.strip()}" for line in lines if line.strip())


def form_lines() -> Iterator[str]:
    for name, form in forms.FORMS.items():
        yield from outside.schema_lines("form", form, name)


def declarations() -> Iterator[str]:
    return outside.schema_lines("yaml", pipeline_schema.SCHEMA)


def side_effects() -> Iterator[str]:
    names = outside.strings_of_calls("side_effect", "include/rewind", "dags")
    return (f"side-effect {name}" for name in names)


def variables() -> Iterator[str]:
    return (f"variable {name}" for name in outside.environment_names("include/rewind", "dags", "plugins", "jobs"))


def mains() -> Iterator[str]:
    for path in sorted((outside.PROJECT / "jobs").glob("*.py")):
        yield f"main {path.name}"
    yield from (f"main {name}" for name in outside.strings_of_calls("add_argument", "jobs", "include/rewind/steps"))


KINDS: dict[str, Callable[[], Iterator[str]]] = {
    "command": commands,
    "metric": metrics,
    "table": tables,
    "form": form_lines,
    "yaml": declarations,
    "side-effect": side_effects,
    "variable": variables,
    "main": mains,
    "status": lambda: outside.field_lines("status", Status),
    "plan": lambda: outside.field_lines("plan", Plan),
    "frozen": lambda: outside.field_lines("frozen", Pipeline),
}


@pytest.mark.shows("house", show_7_lines_that_differ_and_are_not_listed=0)
@pytest.mark.parametrize("kind", KINDS)
def test_what_others_rely_on_is_there_as_it_was(kind):
    assert outside.changed(kind, KINDS[kind]()) == ([], [])


def test_each_difference_names_its_alias_or_why_nobody_needs_one():
    listed = json.loads((outside.FOLDER / "differences.json").read_text())
    assert [entry for entry in listed if not entry["instead"].strip() or entry["change"] not in ("new", "gone")] == []
