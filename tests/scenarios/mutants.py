"""Guards taken out one at a time: the state machine of the lifecycle must notice each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from sqlalchemy import text

from rewind.control import announce, collect, rewinds, verdicts
from rewind.core.errors import RefusedError


def collected_within_its_grace() -> AbstractContextManager[Any]:
    """A standby is collected whatever its grace and whoever still watches."""
    return mock.patch.object(collect, "_grace_is_over", return_value=True)


def switched_on_any_verdict() -> AbstractContextManager[Any]:
    """A cut-over asks neither for an answer nor whether the verdict is of the newest backfill."""

    def newest(connection: Any, rewind_id: str) -> verdicts.Verdict:
        found = verdicts.newest(connection, rewind_id)
        if found is None:
            raise RefusedError("verdict", "there is none", "Validate")
        return found

    return mock.patch.object(verdicts, "approved", newest)


def moved_without_a_word() -> AbstractContextManager[Any]:
    """A switch prepares no announcement."""
    real = announce.prepare

    def first_only(connection: Any, pipeline: str, epoch: int, old: str | None, new: str) -> None:
        if old is None:
            real(connection, pipeline, epoch, old, new)

    return mock.patch.object(announce, "prepare", first_only)


def two_active_rewinds() -> AbstractContextManager[Any]:
    """The schema allows more than one active rewind."""
    real = rewinds.open_rewind

    def unguarded(connection: Any, rewind_id: str, made: Any) -> None:
        connection.execute(text("DROP INDEX IF EXISTS one_active"))
        real(connection, rewind_id, made)

    return mock.patch.object(rewinds, "open_rewind", unguarded)


def an_orphan_is_left() -> AbstractContextManager[Any]:
    """A topic whose maker died before its id was recorded is taken for absent."""
    return mock.patch.object(collect, "_unmade_topic", return_value="absent")


MUTANTS: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
    collected_within_its_grace,
    switched_on_any_verdict,
    moved_without_a_word,
    two_active_rewinds,
    an_orphan_is_left,
)
SOON_NOTICED = (switched_on_any_verdict, moved_without_a_word, two_active_rewinds)
"""Those that some tens of examples suffice for."""
