"""Each DAG refuses what its form does not know, in its first task, before anything has happened: case P10.

The DAGs and their parameters are those of the DAG bag, so that a new one is held too.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from rewind_airflow import run

from rewind.core.errors import RefusedError
from rewind.declared import forms
from rewind.declared.forms import form_of
from rewind.views import change_count

DAGS = Path(__file__).resolve().parents[2] / "dags"

DECLARED = ("carts", "visits")
KINDS = ("rewind", "rollback", "consumers", "deploy", "abort", "stream", "nightly_replay")
SHARED = {"mirror_clicks", "collect_garbage", "prove_mirrors", "watch_streams", "check_pipelines"}
WORDS = {"title", "section"}
"""What a form of Airflow adds to a schema."""
NEEDED = {"abort": {"rewind_id": "rw-0123456789"}}


@pytest.fixture
def bag(installation, declare):
    """The DAGs of two pipelines over one topic."""
    declare("carts")
    found = DagBag(str(DAGS))
    assert found.import_errors == {}
    return found.dags


@pytest.fixture
def refused(installation, context, spark_submit):
    """Run the first tasks of a DAG with a conf; return what each says, after a look that nothing has happened."""
    submits = spark_submit()

    def first_tasks(dag, conf, overrides=True):
        context["ti"].dag_id = dag.dag_id
        # As Airflow merges: what the DAG declares, then the conf, also keys that nobody declared.
        declared = {name: param.value for name, param in dag.params.items()}
        context["params"] = {**declared, **conf} if overrides else declared
        context["dag_run"] = SimpleNamespace(conf=conf)
        before, files = change_count.number(installation.registry_url), contents(installation)
        told = [outcome(task, context) for task in dag.roots]
        assert (change_count.number(installation.registry_url), contents(installation)) == (before, files)
        assert submits() == ""
        return told

    return first_tasks


def contents(installation):
    return sorted(installation.data.rglob("*"))


def outcome(task, context):
    """Return the words of a refusal that no retry follows; any other end is told as what it is."""
    try:
        task.execute(context)
    except AirflowFailException as failed:
        return str(failed) if isinstance(failed.__cause__, RefusedError) else f"failed: {failed}"
    except AirflowException as other:
        return type(other).__name__
    return "ran"


def started(dag, *, needed=True):
    kind = next((kind for kind in NEEDED if dag.dag_id.startswith(f"{kind}_")), "")
    return NEEDED.get(kind, {}) if needed else {}


def texts(schema):
    return "string" in schema["type"]


def wrong(schema):
    """Values of other types than a parameter has."""
    values = {"string": "no", "integer": 5, "boolean": True, "array": ["a"], "object": {"a": 1}, "null": None}
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    mine = {*types, *(["integer"] if "number" in types else [])}
    return [value for kind, value in values.items() if kind not in mine]


def cases(form, of):
    """Every conf that a form must refuse: each with the field that is named, and a part of what is said."""
    yield {"nonsense": 1}, "nonsense", f'{of} does not know "nonsense"'
    for name, schema in form.items():
        typo = name[:-1]
        yield {typo: schema.get("default")}, typo, f'does not know "{typo}". Did you mean "{name}"? Known: '
        yield {name.upper(): schema.get("default")}, name.upper(), f'does not know "{name.upper()}"'
        yield from (({name: value}, name, f"{value!r} is not of type") for value in wrong(schema))
        empty = "is empty. Give " if texts(schema) or "enum" in schema else "is empty. "
        yield from (({name: text}, name, empty) for text in ("", " \n"))


def test_each_dag_has_its_form_and_no_other(bag):
    assert set(bag) == {f"{kind}_{name}" for kind in KINDS for name in DECLARED} | SHARED
    assert forms.FORMS.keys() == {*KINDS, "mirror", *(SHARED - {"mirror_clicks"})}
    for dag in bag.values():
        shown = {name: dag.params.get_param(name) for name in dag.params}
        assert {
            name: {key: value for key, value in param.schema.items() if key not in WORDS}
            for name, param in shown.items()
        } == {
            name: {key: value for key, value in schema.items() if key != "default"}
            for name, schema in form_of(dag.dag_id).items()
        }, dag.dag_id
        assert {name: param.value for name, param in shown.items()} == {
            name: schema.get("default") for name, schema in form_of(dag.dag_id).items()
        }, dag.dag_id


@pytest.mark.parametrize("overrides", [True, False])
@pytest.mark.shows("truth", dags_refuse="unknown keys, wrong types, empty texts")
def test_every_dag_refuses_by_its_first_task_what_its_form_does_not_know(bag, refused, overrides):
    tried = 0
    for dag in bag.values():
        for conf, field, told in cases(form_of(dag.dag_id), dag.dag_id):
            for found in refused(dag, {**started(dag), **conf}, overrides):
                assert found.startswith(f"{field}: "), (dag.dag_id, conf, found)
                assert told in found, (dag.dag_id, conf, found)
                tried += 1
    assert tried > 600


@pytest.mark.shows("truth", p10="refused by name with the nearest")
def test_the_examples_of_the_report_are_refused_by_name(bag, refused):
    assert refused(bag["collect_garbage"], {"dryrun": True}) == [
        'dryrun: collect_garbage does not know "dryrun". Did you mean "dry_run"? Known: dry_run'
    ]
    assert refused(bag["deploy_visits"], {"form": "latest"}) == [
        'form: deploy_visits does not know "form". Did you mean "from"? Known: from'
    ]
    assert refused(bag["watch_streams"], {"owner": "visits-g1"}) == [
        'owner: watch_streams does not know "owner". Known: nothing'
    ]
    assert refused(bag["rewind_visits"], {"from": "2014-01-01"}) == [
        "from: '2014-01-01' has no time zone. Write it with its zone, as 2025-09-04T07:00:00Z"
    ]


def test_a_run_without_a_conf_is_refused_only_where_something_is_needed(bag, context):
    """Scheduled runs have none."""
    for dag in bag.values():
        context["ti"].dag_id, context["params"] = (
            dag.dag_id,
            {name: dag.params[name] for name in dag.params if name != "rewind_id"},
        )
        for conf in (None, {}):
            context["dag_run"] = SimpleNamespace(conf=conf)
            if dag.dag_id.startswith("abort_"):
                with pytest.raises(RefusedError, match="rewind_id: "):
                    run.asked(context, form_of(dag.dag_id))
            else:
                assert run.asked(context, form_of(dag.dag_id)).keys() == dag.params.keys()


def test_what_somebody_asked_for_counts_also_where_airflow_leaves_it_out_of_the_parameters(bag, context):
    context["ti"].dag_id, context["params"] = "collect_garbage", {"dry_run": False}
    context["dag_run"] = SimpleNamespace(conf={"dry_run": True})
    assert run.asked(context, forms.COLLECT) == {"dry_run": True}
    assert run.given(context) == {"dry_run": True}
