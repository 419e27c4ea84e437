"""The evidence of a check: the page says what its JSON says, and texts of users stand there as texts."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from rewind.registry import rewinds, verdicts
from rewind.registry.database import now, writing
from rewind.registry.verdicts import Approval, Verdict
from rewind.runtime import evidence, evidence_page
from rewind.runtime.evidence_page import Bar
from tests.support import fakes
from tests.support.evidence_body import BODY, HOSTILE, value
from tests.support.fakes import installation


class Texts(HTMLParser):
    """Collects the texts of a page, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if data.strip():
            self.texts.append(" ".join(data.split()))


def read(approval=None, **changed):
    found = Texts()
    found.feed(evidence_page.page({**BODY, **changed}, approval))
    return found


def row_of(texts, head, length):
    at = texts.index(head)
    return texts[at : at + length]


def test_the_page_says_what_was_compared_and_what_came_out():
    texts = read().texts
    assert row_of(texts, "partition", 16)[4:] == [
        *("0", "5", "7", "2"),
        *("2", "1", "1", "0"),
        *("10", "0", "9,007,199,254,740,993", "9,007,199,254,740,993"),
    ]
    assert row_of(texts, "changed", 2) == ["changed", "1"]
    assert row_of(texts, "Null shares", 6) == ["Null shares", "live", "candidate", "price", "0.0", "0.5"]
    assert row_of(texts, "visits-g1", 2)[0] == "visits-g1"
    assert row_of(texts, "Late records", 5) == ["Late records", "visits-g1", "3", "visits-g2", "0"]
    assert row_of(texts, "answer", 2) == ["answer", "none yet"]


def test_a_sample_shows_both_sides_field_by_field_those_that_differ_first():
    texts = read().texts
    at = texts.index("changed at partition 10, offset 9007199254740993, row 0")
    assert texts[at + 4 : at + 7] == ["price", "0.10000000000000000001", "2"]
    assert texts[at + 7 : at + 10] == ["kind", "row", "row"]
    at = texts.index("extra at key 0xff")
    assert texts[at + 4 : at + 7] == ["kind", "(none)", "row"]


def test_a_table_within_what_is_told_stands_by_itself_and_nothing_empty_is_shown():
    state = {"counts": {"0-save": {"equal": 40, "changed": 1}}, "batches": {"g1": 3}, "sample": [], "not_compared": ""}
    texts = read(state=state).texts
    assert row_of(texts, "State", 4) == ["State", "g1", "batches", "3"]
    at = texts.index("State: counts")
    assert texts[at + 1 : at + 6] == ["equal", "changed", "0-save", "40", "1"]
    assert "not_compared" not in texts


def test_texts_of_users_stand_as_texts_and_nothing_is_fetched():
    found = read(Approval(2, "approve", HOSTILE, HOSTILE))
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "a", "form"}
    assert not {name for _, attributes in found.tags for name in attributes} & {"src", "href", "onload", "style"}
    assert found.texts.count(HOSTILE) == 2
    assert f"1 changed {HOSTILE}" in found.texts


def test_a_single_difference_is_seen_beside_a_million():
    assert evidence_page.bars({"rows": 1_000_000, "changed": 1, "missing": 0}) == [
        Bar("rows", 1_000_000, 320, bad=False),
        Bar("changed", 1, 1, bad=True),
        Bar("missing", 0, 0, bad=False),
    ]


def test_a_value_that_is_long_is_cut_with_its_length_told():
    long = "x" * 2_001
    row = {**BODY["sample"][1], "candidate": value(a=long)}
    assert f"{'x' * 2_000}… (2,001 characters)" in read(sample=[row]).texts


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


def made_plan(connection):
    made = fakes.plan()
    rewinds.store_plan(connection, made)
    return made


def test_the_answer_comes_into_the_page_of_the_verdict_that_it_answers(settings):
    with writing(settings.registry_url) as connection:
        rewinds.open_rewind(connection, "rw-1", made_plan(connection))
        made = Verdict(2, 1, "pass", {}, {}, {"rows": 1}, [], "", now())
        verdicts.store(connection, "rw-1", made)
    evidence.write(settings, "rw-1", "verdict-2", {**BODY, "verdict": "pass"})
    page = evidence.folder_of(settings, "rw-1") / "verdict-2.html"
    evidence.answered(settings, "rw-1")
    assert "none yet" in page.read_text()
    with writing(settings.registry_url) as connection:
        verdicts.answer(connection, "rw-1", "approve", "ada", "as expected")
    evidence.answered(settings, "rw-1")
    assert "approve by ada: as expected" in " ".join(page.read_text().split())
    assert sorted(path.name for path in page.parent.iterdir()) == ["verdict-2.html", "verdict-2.json"]


def test_an_answer_without_its_page_is_no_error(settings):
    with writing(settings.registry_url) as connection:
        rewinds.open_rewind(connection, "rw-1", made_plan(connection))
        verdicts.store(connection, "rw-1", Verdict(1, 1, "pass", {}, {}, {"rows": 1}, [], "", now()))
        verdicts.answer(connection, "rw-1", "reject", "ada", "no")
    evidence.answered(settings, "rw-1")
    assert not evidence.folder_of(settings, "rw-1").exists()
