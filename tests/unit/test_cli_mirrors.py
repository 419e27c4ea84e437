"""`prove`, `record-deletion`, and what `status` tells of proofs."""

from __future__ import annotations

import json

import pytest

from rewind.cli import context, main
from rewind.core.mirror_proof import Hole, Proof
from rewind.core.offsets import OffsetRange
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log, proof_log
from rewind.registry.mirrors.mirror_log import Commit
from tests.support import installed
from tests.support.installed import FakeAirflow

R = OffsetRange


@pytest.fixture
def settings(tmp_path, monkeypatch):
    made = installed.seed(tmp_path)
    for name, value in installed.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with writing(made.registry_url) as connection:
        mirror_log.record(connection, "visits", Commit(0, "id-1", {0: R(0, 100)}, {0: 100}, {}, 10))
        mirror_log.record(connection, "visits", Commit(1, "id-1", {0: R(100, 120)}, {0: 20}, {}, 10))
    return made


def answered(capsys, *arguments):
    assert main.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def proven(settings, **changes):
    proof = Proof("visits", "id-1", 1, {0: R(0, 120)}, {0: R(60, 120)}, 120, 60, **changes)
    with writing(settings.registry_url) as connection:
        proof_log.record(connection, proof, {0: [R(0, 120)]}, "prove")


def test_prove_runs_its_dag(settings, monkeypatch, capsys):
    airflow = FakeAirflow(settings)
    monkeypatch.setattr(context, "airflow_api", lambda: airflow)
    assert main.main(["prove", "--topic", "visits"]) == 0
    assert main.main(["prove"]) == 0
    assert airflow.runs == [("prove_mirrors", {"topic": "visits"}), ("prove_mirrors", {})]
    assert main.main(["prove", "--topic", "nobodys"]) == 64
    assert "'nobodys' has no mirror" in capsys.readouterr().err
    assert len(airflow.runs) == 2


def test_a_dry_run_tells_what_would_be_proven_and_what_was(settings, capsys):
    (before,) = answered(capsys, "prove", "--dry-run")
    assert (before["topic"], before["position"], before["proof"]) == ("visits", {"0": 120}, None)
    proven(settings, holes=(Hole(0, R(6, 8), "lost"),))
    (after,) = answered(capsys, "prove", "--dry-run", "--topic", "visits")
    assert (after["proof"]["verdict"], after["proof"]["counts"]["lost"]) == ("damaged", 2)


def test_status_tells_the_newest_proof(settings, capsys):
    assert main.main(["status"]) == 0
    assert "none yet" in capsys.readouterr().out
    proven(settings)
    assert main.main(["status"]) == 0
    assert "whole" in capsys.readouterr().out
    proven(settings, holes=(Hole(0, R(6, 8), "lost"),))
    assert main.main(["status"]) == 0
    shown = capsys.readouterr().out
    assert "damaged" in shown
    assert "lost: partition 0 offset 6-7" in " ".join(shown.split())
    (mirror,) = answered(capsys, "status")["mirrors"]
    assert (mirror["proof"]["verdict"], mirror["proof"]["asked_by"]) == ("damaged", "prove")


def test_the_same_asker_at_the_same_version_has_one_proof(settings):
    proven(settings)
    proven(settings, holes=(Hole(0, R(6, 8), "lost"),))
    with writing(settings.registry_url) as connection:
        assert proof_log.newest(connection, "visits", "id-1", "whole") is None
        found = proof_log.newest(connection, "visits", "id-1")
        assert proof_log.newest(connection, "visits", "id-2") is None
    assert (found.verdict, found.holds_for) == ("damaged", {0: [R(0, 120)]})


DELETION = ("record-deletion", "visits", "--partition", "0", "--from", "6", "--to", "8")


def deleted(settings):
    with writing(settings.registry_url) as connection:
        return mirror_log.deletions(connection, "visits", "id-1")


def test_a_deletion_is_recorded_only_when_told_and_once(settings, capsys):
    assert answered(capsys, *DELETION)["recorded"] is False
    assert deleted(settings) == {}
    body = answered(capsys, *DELETION, "--no-dry-run", "--reason", "request 17")
    assert (body["offsets"], body["recorded"], body["topic_id"]) == ([[6, 8]], True, "id-1")
    assert deleted(settings) == {0: [R(6, 8)]}
    wider = ("record-deletion", "visits", "--partition", "0", "--from", "5", "--to", "8")
    assert answered(capsys, *wider, "--no-dry-run", "--reason", "request 18")["offsets"] == [[5, 6]]
    assert main.main([*DELETION, "--no-dry-run", "--reason", "request 17"]) == 0
    assert capsys.readouterr().out == "visits: all of it is recorded as deleted already\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((*DELETION, "--no-dry-run"), "reason: is empty"),
        (("record-deletion", "nobodys", *DELETION[2:]), "topic: 'nobodys' has no mirror"),
        ((*DELETION[:-1], "6"), "to: [6, 6) is no range"),
        ((*DELETION[:-1], "121"), "from: the mirror of visits covers [0, 120) of partition 0"),
        (("record-deletion", "visits", "--partition", "1", *DELETION[4:]), "covers nothing of partition 1"),
    ],
)
def test_what_is_no_deletion_of_a_mirror_is_refused(settings, capsys, arguments, error):
    assert main.main(list(arguments)) == 64
    assert error in capsys.readouterr().err
    assert deleted(settings) == {}
