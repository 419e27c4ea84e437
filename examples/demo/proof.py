"""The end of the demo: what a separate reader finds in Kafka, and what was left alone."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo import check, load, visits
from examples.demo.check import Findings, Place
from examples.demo.errors import DemoError
from examples.demo.producer import Progress
from examples.demo.world import World
from rewind.core.model import Topic
from rewind.core.offsets import Vector, reached
from rewind.local.progress import Look
from rewind.registry.verdicts import Verdict
from rewind.runtime.drivers import supervise
from rewind.views.pointer import Resolved

if TYPE_CHECKING:
    from examples.demo.scenario import Story

TELL_RECORDS = 1_000
SUMS = ("rows", "equal", "expected", "dead_letters", "open", "repeated")
"""Counts of a verdict that are no faults: `open` lies beyond the ceiling, and `repeated` holds exact repeats, which
the contract of an output allows (at least once) and which every reader removes by `rewind-source`."""


@dataclass(frozen=True)
class Photograph:
    """What is there at one moment.

    Attributes:
        topics: Topics with their ids.
        groups: Consumer groups.
        folders: Folders beside that of the job to be collected.
        bystander: End of the bystander topic, and position of the bystander group.
    """

    topics: Mapping[str, str]
    groups: frozenset[str]
    folders: frozenset[Path]
    bystander: tuple[Vector, Vector]


@dataclass(frozen=True)
class Proof:
    """What the separate reader found.

    Attributes:
        findings: The new output against the source topic.
        planted_expected: Records that the bug touched within the verdict's horizon.
        slowest: Fewest records that the producer sent in a second of its steady flow.
        planted: Source records in all.
    """

    findings: Findings
    planted_expected: int
    slowest: int
    planted: int


def photograph(world: World, old: Resolved) -> Photograph:
    """Return what is there now."""
    topics = {name: found.id for name in world.broker.topics() if (found := world.broker.topic(name)) is not None}
    topic, group, _ = load.bystanders(world, old.job_id, old.output_topic)
    folders = frozenset(p for root in (world.settings.generations, world.settings.mirrors) for p in root.iterdir())
    bystander = (dict(world.topic(topic).latest), world.broker.group_offsets(group, topic))
    return Photograph(topics, frozenset(world.groups()), folders, bystander)


def check_untouched(world: World, old: Resolved, before: Photograph) -> None:
    """Check that exactly what the old generation owned is gone.

    Raises:
        DemoError: Something of it is left, or something else is gone or another's.
    """
    after = photograph(world, old)
    gone_topics = {old.output_topic, old.dead_letter_topic}
    wanted_topics = {name: i for name, i in before.topics.items() if name not in gone_topics}
    folder = supervise.generation_folder(world.settings, old.job_id)
    complaints = [
        _differ("topics", {k: after.topics.get(k) for k in before.topics.keys() - gone_topics}, wanted_topics),
        _left("topics", gone_topics & after.topics.keys()),
        _left("consumer group", {old.job_id} & after.groups),
        _left("checkpoint", {str(folder)} if folder.exists() else set()),
        _left("missing groups", before.groups - {old.job_id} - after.groups),
        _left("missing folders", {str(p) for p in before.folders - {folder} - after.folders}),
        _differ("bystander", after.bystander, before.bystander),
    ]
    wrong = [complaint for complaint in complaints if complaint]
    if wrong:
        raise DemoError(f"collection: {'; '.join(wrong)}")


def make(world: World, story: Story, planted: Progress) -> Proof:
    """Read source, new output and dead letters to their ends, and return what was found.

    Raises:
        DemoError: Something is not as it was planted, or not as the verdict says.
    """
    new, rewind = story.live_after, story.rewind
    assert new is not None
    assert rewind is not None
    assert rewind.verdict is not None
    source = world.topic(world.names.topic)
    at_end = functools.partial(_reached, world, new.job_id, source.latest)
    world.waits.until(f"{new.job_id} to reach the end", at_end, lambda: world.driver(new.job_id), pause=1)
    records = list(_read(world, source))
    numbers = check.planted_numbers(records, visits.SEQUENCE)
    zone = rewind.plan.config["session_time_zone"]
    expected = check.expectations(records, zone, rewind.plan.start)
    _check_planted(numbers, expected, planted)
    output, dead = world.topic(new.output_topic), world.topic(new.dead_letter_topic)
    findings = check.compare(
        expected,
        source.id,
        new.job_id,
        _read(world, output),
        _read(world, dead),
    )
    expected_changes = touched_within(numbers, planted.seed, rewind.verdict)
    return Proof(findings, expected_changes, planted.slowest or 0, len(records))


def touched_within(numbers: Mapping[Place, int], seed: int, verdict: Verdict) -> int:
    """Return how many records in the horizon of a verdict the bug touches."""
    compared = check.within(numbers, verdict.floor, verdict.ceiling)
    events = (visits.planted(seed, numbers[place]).event for place in compared)
    return sum(event is not None and visits.touched(event.number) for event in events)


def faults(verdict: Verdict, planted_expected: int) -> list[str]:
    """Return what is wrong with the counts of a verdict, given how many records the bug touched."""
    counts = dict(verdict.counts)
    wrong = [f"{name} is {number}" for name, number in counts.items() if name not in SUMS and number]
    if counts.get("expected") != planted_expected:
        wrong.append(f"expected is {counts.get('expected')}, planted were {planted_expected}")
    return wrong


def _check_planted(numbers: Mapping[Place, int], expected: Mapping[Place, check.Wanted], planted: Progress) -> None:
    if sorted(numbers.values()) != list(range(planted.stored)):
        raise DemoError(f"the source topic does not hold exactly the {planted.stored} records that were planted")
    for place, want in expected.items():
        if want.dead != (visits.kind_of(planted.seed, numbers[place]) in visits.BAD):
            raise DemoError(f"the check takes source {place} for another kind than was planted")


def _reached(world: World, job_id: str, ends: Vector) -> Look[bool]:
    job = next(job for job in world.pipeline().jobs if job.job_id == job_id)
    far = f"{sum(job.position.values()):,} of {sum(ends.values()):,} records"
    return Look(reached(job.position, ends) or None, far, job.position)


def _read(world: World, topic: Topic) -> Iterator[Any]:
    """Return the records of a topic, and say how far it is read."""
    begun, every = time.monotonic(), sum(topic.latest.values())
    for count, record in enumerate(check.read_topic(world.settings.bootstrap, topic.name, topic.latest)):
        if count % TELL_RECORDS == 0:
            world.voice.waiting(f"{topic.name} to be read", f"{count:,} of {every:,} records", time.monotonic() - begun)
        yield record


def _differ(what: str, found: object, wanted: object) -> str:
    return "" if found == wanted else f"{what}: {found}, not {wanted}"


def _left(what: str, names: set[str] | frozenset[str]) -> str:
    return f"{what}: {', '.join(sorted(names))}" if names else ""
