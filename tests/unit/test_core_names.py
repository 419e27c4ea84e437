"""Names that become topics, groups and folders (case C45)."""

from __future__ import annotations

import pytest

from rewind.core import names
from rewind.core.errors import RefusedError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("visits_converter-g1", ("visits_converter", "g", 1)),
        ("visits-v2-r12", ("visits-v2", "r", 12)),
        ("a-g1-g2", ("a-g1", "g", 2)),
    ],
)
def test_a_job_id_says_pipeline_kind_and_number(text, parts):
    assert names.parse_job_id(text) == parts


@pytest.mark.parametrize(
    "text", ["", "visits", "visits-g0", "visits-g01", "visits-x1", "-g1", "visits-g", "visits-g1\n"]
)
def test_other_text_is_no_job_id(text):
    with pytest.raises(RefusedError) as raised:
        names.parse_job_id(text)

    assert raised.value.field == "job_id"


def test_derived_names():
    assert names.job_id("visits", 3) == "visits-g3"
    assert names.repair_id("visits", 3) == "visits-r3"
    assert names.output_topic("converted", "visits-g3") == "converted-g3"
    assert names.dead_letter_topic("converted", "visits-r4") == "converted-r4-dead"
    assert names.mirrored_topic(names.mirror_owner("visits")) == "visits"


def test_what_is_no_mirror_is_refused():
    with pytest.raises(RefusedError, match="'visits' is no mirror"):
        names.mirrored_topic("visits")


ILLEGAL = ["visits v2", "visité", "..", ".", "../live", "a/b", "", "-v2", ".v2", "v2\n", "a\x00b", "v:2", "~"]


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_name_is_refused_and_named(name):
    with pytest.raises(RefusedError) as raised:
        names.checked(name, "pipeline")

    assert raised.value.field == "pipeline"
    assert repr(name) in raised.value.problem


@pytest.mark.parametrize("name", ["visits-v2", "visits_v2", "visits.v2", "2visits", "_v", "a..b", "v" * 249])
def test_a_legal_name_passes(name):
    assert names.checked(name, "pipeline") == name


def test_250_characters_are_too_many():
    with pytest.raises(RefusedError, match="has 250 characters, 249 at most"):
        names.checked("v" * 250, "pipeline")


@pytest.mark.parametrize("base", ["visits v2", "visité", "..", "../live", "", "-v2"])
def test_a_declared_name_is_refused_by_the_name_that_would_be_derived(base):
    with pytest.raises(RefusedError) as raised:
        names.checked_base(base, "output.topic")

    assert raised.value.field == "output.topic"
    assert f"'{base}-g99999-dead' is no legal name" in raised.value.problem


def test_the_longest_derived_name_is_checked_not_the_declared_one():
    assert names.checked_base("v" * 237, "pipeline") == "v" * 237
    for length in (238, 240):
        with pytest.raises(RefusedError, match=f"has {length + 12} characters"):
            names.checked_base("v" * length, "pipeline")


def test_a_new_name_must_not_fold_onto_another():
    with pytest.raises(RefusedError) as raised:
        names.checked_new(["visits.v2-g1"], ["other", "visits_v2-g1"], "pipeline")

    assert "'visits.v2-g1' collides with 'visits_v2-g1'" in raised.value.problem


def test_each_derived_name_is_checked():
    with pytest.raises(RefusedError, match=r"'a\.b-g1-dead' collides with 'a_b-g1-dead'"):
        names.checked_new(["a.b-g1", "a.b-g1-dead"], ["a_b-g1-dead"], "pipeline")
    with pytest.raises(RefusedError, match="'a b-dead' is no legal name"):
        names.checked_new(["fine", "a b-dead"], [], "pipeline")


def test_a_name_does_not_collide_with_itself():
    assert names.checked_new(["visits-v2", "visits_v2-g1"], ["visits_v2-g1"], "pipeline") == [
        "visits-v2",
        "visits_v2-g1",
    ]


@pytest.mark.parametrize("name", ILLEGAL)
def test_the_same_rule_guards_folders(tmp_path, name):
    (tmp_path / "live").mkdir()
    (tmp_path / "candidates").mkdir()

    with pytest.raises(RefusedError):
        names.inside(tmp_path / "candidates", name, "job_id")


def test_a_folder_is_inside_whether_or_not_it_is_there(tmp_path):
    (tmp_path / "visits-g1").mkdir()

    assert names.inside(tmp_path, "visits-g1", "job_id") == tmp_path / "visits-g1"
    assert names.inside(tmp_path, "visits-g2", "job_id") == tmp_path / "visits-g2"


@pytest.mark.parametrize("target", ["live", "../elsewhere", "nowhere"])
def test_a_link_is_refused_wherever_it_leads(tmp_path, target):
    inner = tmp_path / "generations"
    (inner / "live").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (inner / "visits-g2").symlink_to(target)

    with pytest.raises(RefusedError, match="is a link"):
        names.inside(inner, "visits-g2", "job_id")


def test_the_folder_of_all_may_itself_be_reached_by_a_link(tmp_path):
    (tmp_path / "real" / "visits-g1").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("real")

    assert names.inside(tmp_path / "linked", "visits-g1", "job_id") == tmp_path / "linked" / "visits-g1"
