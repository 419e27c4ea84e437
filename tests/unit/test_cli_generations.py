"""`generations`, `diff` and `collect`, on a seeded registry."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta

import pytest

from rewind.cli import context, main
from rewind.registry import database, generations
from rewind.runtime.drivers import supervise
from tests.support import installed
from tests.support.installed import BIG, CANDIDATE, LIVE, OVER, FakeAirflow


@pytest.fixture
def settings(tmp_path, monkeypatch):
    for name, value in installed.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "220")
    return installed.seed(tmp_path)


def answered(capsys, *command):
    assert main.main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_generations_tell_state_epochs_positions_and_what_each_owns(settings, capsys):
    body = answered(capsys, "generations", "visits_converter")
    told = [(v["job"]["job_id"], v["job"]["state"], v["epochs"], v["rewind_id"]) for v in body]
    assert told == [
        (OVER, "aborted", [], None),
        (LIVE, "live", [1], None),
        (CANDIDATE, "candidate", [], installed.REWIND_ID),
    ]
    assert body[1]["job"]["position"] == {"0": BIG + 2}
    assert body[1]["owns"] == [{"kind": "topic", "name": "visits_converted-g2", "resource_id": "id-2", "state": "made"}]
    assert main.main(["generations", "visits_converter"]) == 0
    text = capsys.readouterr().out
    assert f"0:{BIG + 2}" in text
    assert "topic visits_converted-g2 (made)" in text


def test_an_epoch_stays_with_the_generation_that_began_it(settings, capsys):
    with database.writing(settings.registry_url) as connection:
        generations.switch(connection, "visits_converter", LIVE, CANDIDATE, 1, timedelta(0))
    body = answered(capsys, "generations", "visits_converter")
    assert {v["job"]["job_id"]: v["epochs"] for v in body} == {OVER: [], LIVE: [1], CANDIDATE: [2]}


def test_an_unknown_pipeline_has_no_generations(settings, capsys):
    assert main.main(["generations", "other"]) == 64
    assert capsys.readouterr().err.startswith("error: pipeline: 'other' has no generation.")


def test_diff_tells_settings_and_files_and_with_code_their_lines(settings, capsys):
    body = answered(capsys, "diff", LIVE, CANDIDATE)
    assert [d["what"] for d in body["differences"]] == ["max_offsets", "pipelines/visits_converter/logic.py", "pyspark"]
    assert body["differences"][0] == {"what": "max_offsets", "old": "200000", "new": "50000"}
    assert body["differences"][2] == {"what": "pyspark", "old": "4.1.1", "new": "4.2.0"}
    assert body["notes"] == []
    assert main.main(["diff", CANDIDATE, "--code"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{CANDIDATE} -> {LIVE}: 3 differ"
    assert "-    return visits.distinct()" in lines
    assert "+    return visits" in lines


def test_diff_of_a_generation_with_itself_is_empty(settings, capsys):
    assert main.main(["diff", LIVE]) == 0
    assert capsys.readouterr().out == f"{LIVE} -> {LIVE}: the same\n"


def test_diff_with_a_collected_generation_tells_what_it_cannot_compare(settings, capsys):
    body = answered(capsys, "diff", OVER, LIVE)
    assert body["notes"] == [f"the code of {OVER} was collected: files are not compared"]
    assert [d["what"] for d in body["differences"]] == ["bundle"]


def test_diff_with_changed_code_is_70(settings, capsys):
    (supervise.generation_folder(settings, CANDIDATE) / "bundle" / "rewind.zip").write_bytes(b"no zip")
    assert main.main(["diff", LIVE, CANDIDATE]) == 70
    shutil.rmtree(supervise.generation_folder(settings, CANDIDATE) / "bundle")
    # A folder without its code was damaged, not collected.
    assert main.main(["diff", LIVE, CANDIDATE]) == 70


def test_diff_of_what_is_unknown_is_refused(settings, capsys):
    assert main.main(["diff", LIVE, "visits_converter-g9"]) == 64
    assert "error: job_id: 'visits_converter-g9' is unknown" in capsys.readouterr().err


def test_collect_tells_what_goes_and_changes_nothing(settings, capsys, monkeypatch):
    def none_is_asked():
        raise AssertionError

    monkeypatch.setattr(context, "airflow_api", none_is_asked)
    body = answered(capsys, "collect")
    (left,) = body
    assert (left["job_id"], left["state"], left["due_at"]) == (OVER, "aborted", None)
    assert left["things"] == [["topic", "visits_converted-g1"]]
    assert left["waits"] == "due: the next run of collect_garbage takes it"
    assert main.main(["collect", "--dry-run"]) == 0
    assert "topic visits_converted-g1" in capsys.readouterr().out
    with database.writing(settings.registry_url) as connection:
        assert generations.read(connection, OVER).state == "aborted"


def test_a_standby_past_its_grace_stays_while_its_rewind_is_observed(settings, capsys):
    with database.writing(settings.registry_url) as connection:
        generations.switch(connection, "visits_converter", LIVE, CANDIDATE, 1, timedelta(0))
    left = next(thing for thing in answered(capsys, "collect") if thing["job_id"] == LIVE)
    assert left["waits"] == "kept until the rewind that replaced it has ended"


def test_collect_runs_its_dag_only_when_told(settings, capsys, monkeypatch):
    airflow = FakeAirflow(settings)
    monkeypatch.setattr(context, "airflow_api", lambda: airflow)
    assert main.main(["collect", "--no-dry-run"]) == 0
    assert airflow.runs == [("collect_garbage", {"dry_run": False})]
    assert capsys.readouterr().out == f"collect_garbage: run {installed.DRY_RUN}\n"


def test_collect_of_an_unreadable_registry_is_75(settings, monkeypatch, capsys):
    broken = settings.home / "file.db"
    broken.write_text("this is no database, but long enough to look like a file of one" * 20)
    monkeypatch.setenv("REWIND_REGISTRY_URL", f"sqlite:///{broken}")
    assert main.main(["collect"]) == 75


def test_generations_of_two_pipelines_are_not_compared(settings, capsys):
    named = replace(installed.PIPELINE, name="other", output_topic="others")
    other = replace(
        installed.generation("other-g1", "b", named), output_topic="others-g1", dead_letter_topic="others-d"
    )
    with database.writing(settings.registry_url) as connection:
        generations.create(connection, replace(other, pipeline="other"), None)
    assert main.main(["diff", LIVE, "other-g1"]) == 64
    assert "job_id: other-g1 is of other" in capsys.readouterr().err
