"""Names that become topics, consumer groups and folders: made and checked here alone.

Kafka takes `[a-zA-Z0-9._-]`, at most 249 characters, and lets names collide that differ by `.` and `_`
(metric names): https://kafka.apache.org/documentation/#topicconfigs. The same rule guards folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rewind.core.errors import RefusedError

LONGEST = 249
LONGEST_SUFFIX = "-g99999-dead"
"""What is added at most to a declared name; a pipeline must not outgrow its names while it is rewound."""
_LEGAL = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]*")
_JOB_ID = re.compile(r"(?P<pipeline>.+)-(?P<kind>[grn])(?P<number>[1-9][0-9]*)")


def job_id(pipeline: str, number: int) -> str:
    """Return the id of generation `number` of a pipeline."""
    return f"{pipeline}-g{number}"


def repair_id(pipeline: str, number: int) -> str:
    """Return the id of repair `number` of a pipeline."""
    return f"{pipeline}-r{number}"


def replay_id(pipeline: str, number: int) -> str:
    """Return the id of nightly replay `number` of a pipeline."""
    return f"{pipeline}-n{number}"


def parse_job_id(text: str) -> tuple[str, str, int]:
    """Return pipeline, kind (`g`, `r`, or `n` for a nightly replay) and number of a job id.

    Raises:
        RefusedError: `text` is no job id.
    """
    match = _JOB_ID.fullmatch(text)
    if not match:
        raise RefusedError("job_id", f"{text!r} is no job id", "A job id looks like visits_converter-g1")
    return match["pipeline"], match["kind"], int(match["number"])


def output_topic(base: str, job: str) -> str:
    """Return the output topic of a job: the declared base with the job's suffix, as `visits_converted-g1`."""
    _, kind, number = parse_job_id(job)
    return f"{base}-{kind}{number}"


def dead_letter_topic(base: str, job: str) -> str:
    """Return the dead-letter topic of a job."""
    return f"{output_topic(base, job)}-dead"


def shared_output(base: str) -> str:
    """Return the topic or table into which whatever job of a pipeline is live publishes: `visits_counted-shared`."""
    return f"{base}-shared"


def mirror_owner(topic: str) -> str:
    """Return under which name the mirror of a topic takes its lease."""
    return f"mirror-{topic}"


def night_owner(pipeline: str) -> str:
    """Return under which name the nightly replays of a pipeline take their lease: one at a time."""
    return f"night-{pipeline}"


def mirrored_topic(owner: str) -> str:
    """Return the topic of a mirror's owner name.

    Raises:
        RefusedError: It is no such name.
    """
    topic = owner.removeprefix("mirror-")
    if topic == owner:
        raise RefusedError("owner", f"{owner!r} is no mirror", "A mirror's owner looks like mirror-visits")
    return topic


def checked(name: str, field: str) -> str:
    """Return `name` when it is legal as topic, group and folder name.

    Raises:
        RefusedError: It is empty, too long, starts with a dot or dash, or has other characters.
    """
    if not _LEGAL.fullmatch(name):
        cure = "Use letters, digits, '-', '_' and '.', beginning with a letter, digit or '_'"
        raise RefusedError(field, f"{name!r} is no legal name", cure)
    if len(name) > LONGEST:
        raise RefusedError(field, f"{name[:40]}… has {len(name)} characters, {LONGEST} at most", "Shorten it")
    return name


def checked_base(base: str, field: str) -> str:
    """Return a declared name when all names that will ever be derived from it are legal.

    Raises:
        RefusedError: The longest derived name is illegal or too long.
    """
    checked(f"{base}{LONGEST_SUFFIX}", field)
    return base


def checked_new(names: Iterable[str], taken: Iterable[str], field: str) -> list[str]:
    """Return the derived names when all are legal and none collides with one that is taken.

    Raises:
        RefusedError: A derived name is illegal, too long, or equals a taken one up to letter case, `.` and `_`.
    """
    folded = {fold(name): name for name in taken}
    result = [checked(name, field) for name in names]
    for name in result:
        other = folded.get(fold(name))
        if other is not None and other != name:
            cure = "Kafka folds '.' and '_', and some disks fold letter case: choose another"
            raise RefusedError(field, f"{name!r} collides with {other!r}", cure)
    return result


def inside(folder: Path, name: str, field: str) -> Path:
    """Return `folder / name` when the name is legal and no link leads out of the folder.

    Raises:
        RefusedError: An illegal name, or a link.
    """
    path = folder / checked(name, field)
    if path.is_symlink() or (path.exists() and path.resolve().parent != folder.resolve()):
        raise RefusedError(field, f"{path} is a link", "Remove the link: Rewind writes real folders only")
    return path


def fold(name: str) -> str:
    """Return what two names share that must not stand beside each other: letter case, `.` and `_` do not count."""
    return name.casefold().replace(".", "_")
