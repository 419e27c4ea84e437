"""One contract for the planner's view of the registry: what the fake promises, the real one keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from rewind.core import lifecycle
from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.core.planning.plan import Request
from rewind.registry import generations, progress, rewinds
from rewind.registry.database import writing
from rewind.runtime import planner_reads
from tests.support.fake_ports import FakeLifecycle
from tests.support.fakes import PIPELINE, generation, installation, plan
from tests.support.signatures import public

NAME = PIPELINE.name
G1, G2 = f"{NAME}-g1", f"{NAME}-g2"
AT = datetime.fromisoformat("2025-09-04T12:00")


class RealLifecycle(planner_reads.Lifecycle):
    """The real one, with what steps and streams record."""

    def create(self, made):
        with writing(self._url) as connection:
            generations.create(connection, made, None)

    def point(self, job_id):
        with writing(self._url) as connection:
            pipeline = generations.read(connection, job_id).pipeline
            live = generations.live(connection, pipeline)
            if live is None:
                generations.set_first(connection, job_id)
            else:
                generations.switch(connection, pipeline, live[0].job_id, job_id, live[1], timedelta(hours=1))

    def commit(self, job_id, batch):
        with writing(self._url) as connection:
            progress.record(connection, job_id, 1, batch)

    def open_rewind(self, pipeline, rewind_id):
        with writing(self._url) as connection:
            rewinds.open_rewind(connection, rewind_id, plan(request=Request(pipeline)))

    def close_rewind(self, pipeline):
        with writing(self._url) as connection:
            rewinds.close(connection, rewinds.active_of(connection, pipeline).id, lifecycle.FINISHED)


@pytest.fixture(params=["fake", "real"])
def seen(request, tmp_path):
    """A registry of no pipelines: in memory, and on disk."""
    return FakeLifecycle() if request.param == "fake" else RealLifecycle(installation(tmp_path / "home").registry_url)


def candidate(number=1, **changes):
    return generation(number=number, state="candidate", **changes)


def batch(number, end, closing=0):
    return Batch(number, {0: 0}, end, 5, AT, closing, closing)


def numbers(*batches):
    return [None if one is None else one.batch for one in batches]


# --- live


def test_nothing_is_live_before_the_first_deployment(seen):
    assert seen.live(NAME) is None
    seen.create(candidate())
    assert seen.live(NAME) is None


def test_the_pointer_names_the_live_generation_and_its_epoch(seen):
    made = candidate(start={0: 5, 10: 7}, handoff={0: 6, 10: 8})
    seen.create(made)
    seen.point(G1)
    assert seen.live(NAME) == (replace(made, state="live"), 1)
    assert seen.live("other") is None


def test_each_move_of_the_pointer_is_an_epoch(seen):
    seen.create(candidate(1))
    seen.point(G1)
    seen.create(candidate(2))
    for job_id, epoch in ((G2, 2), (G1, 3), (G2, 4)):
        seen.point(job_id)
        live, at = seen.live(NAME)
        assert (live.job_id, live.state, at) == (job_id, "live", epoch)


# --- positions


def test_a_stream_without_a_batch_stands_at_its_handoff(seen):
    seen.create(candidate(1, handoff={0: 5, 1: 6}))
    assert seen.position(G1) == {0: 5, 1: 6}
    seen.create(generation(number=2, state="aborted", handoff=None))
    assert seen.position(G2) == {}


def test_a_stream_stands_at_the_end_of_its_newest_batch_and_elsewhere_at_its_handoff(seen):
    seen.create(candidate(handoff={0: 5, 1: 6}))
    for number, end in ((10, {0: 9, 2: 3}), (2, {0: 7, 1: 7})):
        seen.commit(G1, batch(number, end))
    assert seen.position(G1) == {0: 9, 1: 6, 2: 3}


def test_a_position_that_is_returned_is_a_copy(seen):
    seen.create(candidate(handoff={0: 5}))
    seen.commit(G1, batch(0, {0: 9}))
    seen.position(G1)[0] = 1
    assert seen.position(G1) == {0: 9}


def test_an_unknown_job_stands_nowhere(seen):
    with pytest.raises(RefusedError) as raised:
        seen.position(G1)
    assert (raised.value.field, raised.value.problem) == ("job_id", f"{G1!r} is unknown")


# --- batches


def test_a_job_without_batches_has_none(seen):
    seen.create(candidate())
    seen.commit(G2, batch(3, {0: 9}, 50))
    found = seen.newest_batch(G1), seen.batch_reaching(G1, {0: 0}), seen.last_batch_closing(G1, 99)
    assert (*found, seen.first_batch_closing_after(G1, 0)) == (None, None, None, None)


def test_a_batch_comes_back_as_it_was_recorded(seen):
    made = Batch(2**40, {0: 2**53 + 1, 10: 0}, {0: 2**53 + 3, 10: 4}, 2**33, AT, 1_757_000_000_001, 1_757_000_000_002)
    seen.commit(G1, made)
    assert replace(seen.newest_batch(G1), at=AT) == made


def test_the_newest_batch_is_the_one_of_the_highest_number_and_recorded_again_the_last_word_counts(seen):
    for number, end in ((10, {0: 9}), (2, {0: 7}), (10, {0: 8})):
        seen.commit(G1, batch(number, end))
    assert (seen.newest_batch(G1).batch, seen.newest_batch(G1).end) == (10, {0: 8})


def test_the_batch_that_reaches_a_position_is_the_first_that_does_so_in_all_partitions(seen):
    for number, end in ((2, {0: 4, 1: 0}), (3, {0: 4, 1: 3}), (7, {0: 6, 1: 3, 2: 1}), (9, {0: 8, 1: 9, 2: 1})):
        seen.commit(G1, batch(number, end))
    wanted = ({}, {0: 0}, {0: 4}, {0: 4, 1: 1}, {0: 5}, {2: 1}, {0: 8, 1: 9}, {0: 9}, {3: 1})
    assert numbers(*(seen.batch_reaching(G1, at) for at in wanted)) == [2, 2, 2, 3, 7, 7, 9, None, None]


def test_batches_are_found_by_the_watermark_at_which_they_close(seen):
    for number, closing in ((0, 0), (2, 100), (3, 100), (7, 250)):
        seen.commit(G1, batch(number, {0: number}, closing))
    instants = (-1, 0, 99, 100, 249, 250, 999)
    assert numbers(*(seen.last_batch_closing(G1, at) for at in instants)) == [None, 0, 0, 3, 3, 7, 7]
    assert numbers(*(seen.first_batch_closing_after(G1, at) for at in instants)) == [0, 2, 2, 7, 7, None, None]


# --- rewinds and numbers


def test_the_active_rewind_is_that_of_the_pipeline_until_it_ends(seen):
    assert seen.active_rewind(NAME) is None
    seen.open_rewind(NAME, "rw-1")
    assert (seen.active_rewind(NAME), seen.active_rewind("other")) == ("rw-1", None)
    seen.close_rewind(NAME)
    assert seen.active_rewind(NAME) is None


def test_numbers_follow_the_highest_ever_used_of_pipeline_and_kind(seen):
    assert (seen.next_number(NAME, "g"), seen.next_number(NAME, "r")) == (1, 1)
    for number, state in ((7, "aborted"), (3, "collected")):
        seen.create(generation(number=number, state=state))
    seen.create(generation(number=9, state="retired", job_id=f"{NAME}-r9"))
    seen.create(generation(replace(PIPELINE, name="other", output_topic="others"), 4, state="retired"))
    assert (seen.next_number(NAME, "g"), seen.next_number(NAME, "r")) == (8, 10)
    assert (seen.next_number("other", "g"), seen.next_number("other", "r")) == (5, 1)


# --- the fake has no more and no less


def test_the_fake_has_the_public_methods_of_the_real_one():
    fake, owners = public(FakeLifecycle), public(RealLifecycle)
    assert {name: fake.pop(name) for name in owners} == owners
    assert fake == public(planner_reads.Lifecycle)
