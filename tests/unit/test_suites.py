"""Expectations of a pipeline as text: what is read, and what is refused before anything is run."""

from __future__ import annotations

import json

import pytest

from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.declared import expectations, pipelines
from tests.support.workshop import declare

NOT_NULL = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "event_id"}}


def written(folder, text):
    (folder / expectations.FILE).write_text(text)
    return folder


def test_without_a_file_nothing_is_expected(tmp_path):
    assert expectations.read(tmp_path) == {}


def test_expectations_are_read_as_they_stand(tmp_path):
    rows = {"type": "expect_table_row_count_to_be_between"}
    found = expectations.read(written(tmp_path, json.dumps({"output": [NOT_NULL], "differences": [rows]})))
    assert found == {"output": [NOT_NULL], "differences": [{**rows, "kwargs": {}}]}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "expectations.json"),
        ('{"outputs": []}', "expectations.json"),
        ('{"output": [{"kwargs": {}}]}', "expectations.json.output.0"),
        ('{"output": [{"type": "drop_table"}]}', "expectations.json.output.0.type"),
        (json.dumps({"output": [NOT_NULL, NOT_NULL]}), "expectations.json.output"),
        ('{"differences": [{"type": "expect_x", "notes": 1}]}', "expectations.json.differences.0"),
    ],
)
def test_what_breaks_the_schema_is_refused_with_its_field(tmp_path, text, field):
    with pytest.raises(RefusedError) as refused:
        expectations.read(written(tmp_path, text))
    assert refused.value.field.endswith(field)


def test_they_are_frozen_with_the_pipeline(tmp_path):
    declare(tmp_path, "visits", "visits-in")
    written(tmp_path / "visits", json.dumps({"output": [NOT_NULL]}))
    made = pipelines.load(tmp_path, "visits")
    assert made.expectations == {"output": [NOT_NULL]}
    assert Pipeline.from_frozen(json.loads(json.dumps(made.frozen()))) == made
