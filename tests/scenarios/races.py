"""Processes that want the same thing of the registry at the same moment."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rewind.core import lifecycle
from rewind.core.errors import RefusedError, WorldMovedError
from rewind.core.planning.plan import Request
from rewind.registry import database, generations, rewinds
from rewind.registry.database import writing
from tests.support.fakes import PIPELINE, generation, plan

log = logging.getLogger(__name__)

NAME = PIPELINE.name
# Forked children would share the parent's connections and threads.
SPAWN = multiprocessing.get_context("spawn")


def pointer_race(url: str, processes: int, rounds: int) -> list[int]:
    """Let processes fight for the pointer, a compare-and-set each and epoch; return how often each won.

    Each process moves it to jobs of its own, so that whoever finds the pointer there has won.
    """
    database.upgrade(url)
    with writing(url) as connection:
        generations.create(connection, generation(number=1, state=lifecycle.CANDIDATE), None)
        generations.set_first(connection, f"{NAME}-g1")
        for number in range(2, 2 + 2 * processes):
            generations.create(connection, generation(number=number, state=lifecycle.STANDBY), None)
    return _all(_fight, url, processes, rounds)


def _fight(url: str, me: int, rounds: int, barrier: Any, won: Any) -> None:
    mine = [f"{NAME}-g{2 + 2 * me}", f"{NAME}-g{3 + 2 * me}"]
    barrier.wait()
    for epoch in range(1, rounds + 1):
        with writing(url) as connection:
            live, at = generations.live(connection, NAME) or (None, 0)
        assert live is not None
        # A loser of this epoch still tries: its claim must be refused.
        target = mine[0] if live.job_id != mine[0] else mine[1]
        try:
            with writing(url) as connection:
                generations.switch(connection, NAME, live.job_id, target, epoch, timedelta(hours=1))
            won.put((me, epoch))
        except WorldMovedError:
            assert at >= epoch or _epoch(url) > epoch


def _epoch(url: str) -> int:
    with writing(url) as connection:
        return (generations.live(connection, NAME) or (None, 0))[1]


def start_race(url: str, processes: int, rounds: int) -> list[int]:
    """Let processes open a rewind of one pipeline at once; return the winners of each round."""
    database.upgrade(url)
    return _all(_open, url, processes, rounds)


def _open(url: str, me: int, rounds: int, barrier: Any, won: Any) -> None:
    for number in range(rounds):
        barrier.wait()
        rewind_id = f"rw-{number}-{me}"
        try:
            with writing(url) as connection:
                rewinds.open_rewind(connection, rewind_id, plan(request=Request(NAME, reason=rewind_id)))
            won.put((me, number + 1))
        except RefusedError:
            log.info("%s lost round %d", me, number)
        if barrier.wait() == 0:
            with writing(url) as connection:
                active = rewinds.active_of(connection, NAME)
                assert active is not None
                rewinds.close(connection, active.id, lifecycle.ABORTED)


def _all(body: Callable[..., None], url: str, processes: int, rounds: int) -> list[int]:
    barrier, won = SPAWN.Barrier(processes), SPAWN.Queue()
    started = [SPAWN.Process(target=body, args=(url, me, rounds, barrier, won)) for me in range(processes)]
    for process in started:
        process.start()
    winners = [0] * rounds
    while any(process.is_alive() for process in started) or not won.empty():
        try:
            _, number = won.get(timeout=0.2)
        except Exception:  # noqa: BLE001 - the queue's own Empty, whose module the context hides
            continue
        winners[number - 1] += 1
    assert [process.exitcode for process in started] == [0] * processes
    return winners
