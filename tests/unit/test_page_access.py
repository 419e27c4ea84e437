"""What of a state one person sees."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from fastapi import HTTPException

from rewind.views.status import PipelineView, Status
from rewind.web.access import READS_ALL, Access, Viewer

AT = datetime(2025, 9, 4, tzinfo=UTC)
VIEWS = (PipelineView("or", True, source_topic="carts"), PipelineView("visits", True, source_topic="clicks"))
PROBLEMS = (
    "topic carts is not shown",
    "or-g1 has no folder",
    "Kafka at a or b does not answer",
    "the floor of visits-g1",
)


def viewer(*allowed):
    return Viewer(Access(str, lambda _, dag_ids: set(dag_ids) & set(allowed), lambda *_: False, str), "ada")


def test_who_sees_all_gets_the_same_value():
    found = Status(AT, True, PROBLEMS, VIEWS, ())
    assert Viewer(READS_ALL, None).part(found) is found
    assert viewer("rewind_or", "rewind_visits").part(found) is found


def test_a_part_names_nothing_that_is_hidden():
    part = viewer("rewind_visits").part(Status(AT, True, PROBLEMS, VIEWS, ()))
    assert [view.name for view in part.pipelines] == ["visits"]
    # A word that a hidden name is may be lost with it; a part of a word is not.
    assert part.problems == ("the floor of visits-g1",)


def test_a_topic_that_is_ones_own_too_is_told():
    views = (*VIEWS, PipelineView("carts_too", True, source_topic="carts"))
    part = viewer("rewind_carts_too").part(Status(AT, True, ("topic carts is not shown",), views, ()))
    assert part.problems == ("topic carts is not shown",)


def test_a_refusal_names_the_dag_whose_right_is_missing():
    for check in (lambda v: v.check("visits", "or"), lambda v: v.check_dag("rewind_or")):
        with pytest.raises(HTTPException) as refused:
            check(viewer("rewind_visits"))
        assert (refused.value.status_code, refused.value.detail) == (403, "reading rewind_or is not allowed to you")
    viewer("rewind_visits").check_any(["or", "visits"], "mirror-clicks")
    with pytest.raises(HTTPException, match="403"):
        viewer("rewind_visits").check_any(["or"], "mirror-carts")
