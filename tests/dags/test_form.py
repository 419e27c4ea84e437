"""The trigger forms: words for every parameter, defaults that pass, bad values named by their field."""

from __future__ import annotations

import importlib

import pytest
from airflow.sdk.exceptions import ParamValidationError
from rewind_airflow import form

from rewind.declared.forms import CONSUMERS, PARAMETERS, ROLLBACK, parse

BAD = {
    "from": ["abc", '["a"]', "2025-9-4", "2014-01-01", "2025-09-04T07:00:00", "P", "PT", "P1DT", 5, None],
    "to": ["abc", 3],
    "overrides": ["text", {"unknown": 1}, {"lag_gate": 0}, {"max_offsets": "many"}],
    "reason": ["r" * 2_001, 1],
    "same_code": ["yes", None],
    "auto_approve": [1],
    "observe": ["15 minutes", "", "P", "PT", None],
    "grace": ["-PT1H", "1h"],
    "repair_into": ["elsewhere"],
    "consumer_groups": ["shop", ["a b"], ["a,b"], ["a", "a"], [""], [1]],
    "only_new": ["", "drop"],
    "replay_from": ["live", "P1D", 5],
    "on_difference": ["", "abort"],
    "compare": ["", "some"],
    "compare_every": ["5m", 300],
    "dry_run": ["false"],
    "apply_plan": ["zz", "ABCDEF012345"],
}


def test_each_parameter_has_its_words():
    assert sorted(form.WORDS) == sorted(PARAMETERS)


def test_the_form_as_it_opens_is_accepted_and_is_a_dry_run():
    opened = {name: param.resolve() for name, param in form.params().items()}
    assert opened == {name: schema["default"] for name, schema in PARAMETERS.items()}
    assert opened["dry_run"] is True
    assert parse("visits", opened).start == "earliest"


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_refused(name, value):
    with pytest.raises(ParamValidationError):
        form.params()[name].resolve(value)


def test_a_field_that_was_emptied_takes_its_default():
    emptied = {name: None if "null" in schema["type"] else schema["default"] for name, schema in PARAMETERS.items()}
    assert {name: form.params()[name].resolve(value) for name, value in emptied.items()} == emptied
    assert parse("visits", emptied) == parse("visits", {})


def test_the_form_of_a_rollback():
    assert sorted(form.ROLLBACK_WORDS) == sorted(ROLLBACK)
    opened = {name: param.resolve() for name, param in form.rollback_params().items()}
    assert opened == {name: schema["default"] for name, schema in ROLLBACK.items()}
    assert (opened["to"], opened["grace"], opened["move_consumers"], opened["dry_run"]) == (None, "PT1H", True, True)
    for name, value in (("to", "../live"), ("to", "visits-r1"), ("grace", "1h"), ("dry_run", "no")):
        with pytest.raises(ParamValidationError):
            form.rollback_params()[name].resolve(value)


def test_the_form_of_a_move_of_consumers():
    assert sorted(form.CONSUMERS_WORDS) == sorted(CONSUMERS)
    opened = {name: param.resolve() for name, param in form.consumers_params().items()}
    assert opened == {name: schema["default"] for name, schema in CONSUMERS.items()}
    assert form.consumers_params()["consumer_groups"].resolve(["shop", "a.b-c"]) == ["shop", "a.b-c"]


@pytest.mark.parametrize(
    ("module", "name", "good", "bad"),
    [
        ("aborts", "rewind_id", ["rw-0123456789"], ["", "rw-1", "rw-0123456789x", "../live", None]),
        (
            "deploys",
            "from",
            ["latest", "group:g.1", "checkpoint:/a b"],
            ["", "abc", "group:", "group:../x", "earliest "],
        ),
        ("streams", "owner", ["", None, "visits-g1"], ["visits", "-g1", "visits-g0", "../live-g1", "v" * 300 + "-g1"]),
    ],
)
def test_the_smaller_forms(module, name, good, bad):
    file = importlib.import_module(module)
    param = file.OWNER if module == "streams" else file.PARAMS[name]
    assert [param.resolve(value) for value in good] == good
    for value in bad:
        with pytest.raises(ParamValidationError):
            param.resolve(value)
