"""How a task ends by the error of a step: tried again where the same may go well later, and for good otherwise."""

from __future__ import annotations

import pytest
from rewind_airflow import reactions
from rewind_airflow.reactions import final_reactions

from rewind.core.errors import (
    IntegrityError,
    LeaseHeldError,
    LeaseLostError,
    QuarantineError,
    RefusedError,
    RetryError,
    WorldMovedError,
)

AGAIN, FOR_GOOD = reactions.AirflowException, reactions.AirflowFailException
REFUSED = [
    RefusedError("to", "is empty", "Give it"),
    WorldMovedError("to", "has moved", "Look"),
    IntegrityError("torn"),
]


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (RetryError("away"), AGAIN),
        (LeaseHeldError("held"), AGAIN),
        *((error, FOR_GOOD) for error in [*REFUSED, LeaseLostError("lost"), QuarantineError("loops")]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_submit(error, ended):
    with pytest.raises(AGAIN) as raised, reactions.reactions():
        raise error
    assert type(raised.value) is ended
    assert str(raised.value) == str(error)


def test_a_look_is_taken_again_by_itself_and_ends_for_good_otherwise():
    with pytest.raises(RetryError), final_reactions():
        raise RetryError("away")
    for error in (*REFUSED, LeaseHeldError("held")):
        with pytest.raises(FOR_GOOD), final_reactions():
            raise error


def test_the_exit_codes_that_are_final_are_argparses_and_those_of_errors_that_would_come_again():
    assert {2, 64, 65, 70, 71, 74} == reactions.FINAL_CODES
