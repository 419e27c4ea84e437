"""A backfill of a whole topic, cold start and all, beside the script that an engineer would write instead."""

from __future__ import annotations

from benchmarks import rounds
from benchmarks.ground import PARTITIONS, Ground, ground
from benchmarks.peers import environment as peers
from benchmarks.rounds import Ratio, Spent
from rewind.registry import generations, rewinds

RECORDS, QUICK_RECORDS = 1_000_000, 200_000


def measure(quick: bool) -> list[Ratio]:
    """Return the times of the backfill step and of the plan as multiples of the script's."""
    records, count = (QUICK_RECORDS, 2) if quick else (RECORDS, 5)
    with ground(records) as made:
        sides = Sides(made)
        taken = rounds.interleaved({"script": sides.script, "plan": sides.plan, "backfill": sides.backfill}, count)
    return [
        rounds.ratio("backfill_step_to_script", taken, "backfill", "script"),
        rounds.ratio("backfill_step_to_script_cpu", taken, "backfill", "script", cpu=True),
        rounds.ratio("plan_to_script", taken, "plan", "script"),
    ]


class Sides:
    """What is run in turn: each round into topics of its own, whose contents are then held against each other."""

    def __init__(self, made: Ground) -> None:
        """Keep the ground."""
        self._ground = made
        self._number = 0
        self._rewind = ""

    def script(self) -> Spent:
        """Convert the topic by the script."""
        self._number += 1
        shop = self._ground.shop
        shop.create_topic(self._target, PARTITIONS)
        zone = shop.declared().session_time_zone
        return rounds.of_process(peers.command("convert", shop.settings.bootstrap, shop.topic, self._target, zone))

    def plan(self) -> Spent:
        """Plan the rewind, and make its candidate."""
        self._rewind, spent = self._ground.planned()
        self._ground.of_rewind("spin_up", self._rewind)
        return spent

    def backfill(self) -> Spent:
        """Backfill, prove that both wrote the same, and take the rewind back."""
        spent = self._ground.of_rewind("backfill", self._rewind)
        shop = self._ground.shop
        with shop.registry() as connection:
            job = rewinds.read(connection, self._rewind).job_id
            output = generations.read(connection, job).output_topic
        digest = peers.command("digest", shop.settings.bootstrap)
        mine, theirs = (rounds.output_of([*digest, topic]) for topic in (output, self._target))
        if mine != theirs or not mine.startswith(f"{self._ground.records} "):
            raise RuntimeError(f"of {self._ground.records} the script wrote {theirs}, the backfill {mine}")
        self._ground.abort(self._rewind)
        return spent

    @property
    def _target(self) -> str:
        return f"bench-script-{self._number}"
