"""The line of nights of a job with an unbounded horizon: each goes on from the checkpoint of the one before it.

Any record may count for its results. A replay from the beginning is right, and grows dearer each night; so a night
leaves to the next one its checkpoint, the log of its feed without the records, what the registry knows of both, and its
table of results, of which the open ones are taken over. Offsets join them: where they do not, the night starts again.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from rewind.adapters import delta_output, feed
from rewind.core import nights as rules
from rewind.core.crash import side_effect
from rewind.core.horizon import Frontier
from rewind.core.model import Generation
from rewind.core.nights import Night
from rewind.core.offsets import Ranges, reached, starts, total
from rewind.core.settings import Settings
from rewind.registry import chunk_log, nightly_replays, progress
from rewind.registry.database import reading, writing
from rewind.registry.nightly_replays import Replayed
from rewind.runtime import tables
from rewind.runtime.drivers import supervise
from rewind.steps.feed.feeding import feed_path
from rewind.steps.replays.night_report import Answer

log = logging.getLogger(__name__)

_BOUND_TO_ITS_PLACE = "TransformWithState"
"""Operators whose state names its own path: a copy of their checkpoint would read what is no longer there."""


class Line:
    """What a night finds of the nights before it, and leaves to the one after it.

    Attributes:
        kept: Id of the night that it may go on from, or None.
    """

    def __init__(self, settings: Settings, live: Generation, night: Night) -> None:
        """Look for another night of the live job that left its checkpoint; of the same one nothing is of use."""
        self._settings = settings
        self._live = live
        with reading(settings.registry_url) as connection:
            last = nightly_replays.kept(connection, live.pipeline, live.job_id) if _continues(live) else None
            again = nightly_replays.find(connection, night)
        self._last = None if last == again else last
        self._taken = False

    @property
    def kept(self) -> str | None:  # noqa: D102 - see the class
        return None if self._last is None else self._last.replay_id

    def take_up(self, spark: SparkSession, replay: Generation, before: Frontier | None, compared: Ranges) -> None:
        """Let a replay that has written nothing go on from the night before, if that ended where its range begins.

        Args:
            spark: The session.
            replay: The replay, its tables made.
            before: How far the nights before it have compared.
            compared: Its source offsets.
        """
        if self.kept is None or before is None:
            return
        opened = before.unread.get(tables.id_of(self._settings, self._results) or "")
        with reading(self._settings.registry_url) as connection:
            ended = progress.position(connection, self.kept, {})
        if opened is None or not reached(starts(compared), ended):
            log.info("%s starts again: %s ended at %s", replay.job_id, self.kept, ended)
            return
        self._taken = True
        log.info("%s resumes from %s, which ended at %s", replay.job_id, self.kept, ended)
        with side_effect("night.take_up"):
            self._copy(spark, replay, opened[0])

    def leave(self, recorded: Replayed, answer: Answer) -> str | None:
        """Return the night that the next one may go on from, or None; all others' remains can be deleted."""
        if answer.state not in rules.ANSWERED:
            # What was taken up may be what is wrong: tried again, the night starts again.
            return None if self._taken else self.kept
        older = self._last is not None and recorded.end_at <= self._last.end_at
        if older or not _continues(self._live) or not total(answer.compared):
            return self.kept
        with side_effect("night.keep"):
            feed.let_go(Path(feed_path(self._settings, recorded.replay_id)))
            with writing(self._settings.registry_url) as connection:
                nightly_replays.keep(connection, recorded.replay_id)
        return recorded.replay_id

    @property
    def _results(self) -> str:
        assert self.kept is not None
        with reading(self._settings.registry_url) as connection:
            return nightly_replays.tables_of(connection, self.kept)[0]

    def _copy(self, spark: SparkSession, replay: Generation, opened: int) -> None:
        assert self.kept is not None
        old, new = (supervise.generation_folder(self._settings, name) for name in (self.kept, replay.job_id))
        shutil.copytree(old / "checkpoint", new / "checkpoint")
        log_of_feed = Path(feed_path(self._settings, self.kept)).relative_to(old) / "_delta_log"
        shutil.copytree(old / log_of_feed, new / log_of_feed)
        source, target = (str(tables.path(self._settings, name)) for name in (self._results, replay.output_topic))
        delta_output.carry(spark, source, target, opened, f"{replay.job_id}-open")
        with writing(self._settings.registry_url) as connection:
            progress.hand_on(connection, self.kept, replay.job_id)
            chunk_log.hand_on(connection, self.kept, replay.job_id)


def _continues(live: Generation) -> bool:
    pipeline = live.declared
    bound = any(operator.startswith(_BOUND_TO_ITS_PLACE) for operator in live.kept_state)
    return pipeline.stateful and pipeline.horizon_milliseconds is None and not bound
