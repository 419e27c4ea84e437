"""What differs between two generations: what is frozen of them, their code line by line too."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.core.planning.differences import Difference, Version, differences
from rewind.core.settings import Settings
from rewind.runtime.drivers import bundle, supervise
from rewind.runtime.drivers.bundle import Bundle

CODE = "bundle"
"""What stands for all files, when those of one generation are gone."""


@dataclass(frozen=True)
class Compared:
    """What differs between two generations of a pipeline.

    Attributes:
        old: Job id of the one.
        new: Job id of the other.
        differences: What differs; `live` of each is the one's, `candidate` the other's.
        lines: Their code as a unified diff, a line each without its end.
        notes: What could not be compared, and why.
    """

    old: str
    new: str
    differences: tuple[Difference, ...]
    lines: tuple[str, ...]
    notes: tuple[str, ...]


def compare(settings: Settings, one: Generation, other: Generation) -> Compared:
    """Return what differs between two generations.

    Raises:
        RefusedError: They belong to two pipelines.
        IntegrityError: The frozen code of one was changed.
    """
    old, new = one.job_id, other.job_id
    if one.pipeline != other.pipeline:
        problem = f"{new} is of {other.pipeline}, {old} of {one.pipeline}"
        raise RefusedError("job_id", problem, "Name two generations of one pipeline")
    bundles = {made.job_id: _frozen(settings, made) for made in (one, other)}
    notes = tuple(f"the code of {job} was collected: files are not compared" for job, b in bundles.items() if b is None)
    code, others_code = bundles[old], bundles[new]
    made_with = _made_with(one, other)
    if code is None or others_code is None:
        found = differences(_version(one, {CODE: one.bundle}), _version(other, {CODE: other.bundle}))
        return Compared(old, new, (*found, *made_with), (), notes)
    found = differences(_version(one, code.files), _version(other, others_code.files))
    return Compared(old, new, (*found, *made_with), tuple(_lines(code, others_code, one, other)), notes)


def _frozen(settings: Settings, made: Generation) -> Bundle | None:
    # A collected generation has no folder any more; one that has it must be whole.
    there = supervise.generation_folder(settings, made.job_id).is_dir()
    return supervise.frozen_bundle(settings, made.job_id, made.bundle) if there else None


def _version(made: Generation, files: Mapping[str, str]) -> Version:
    return Version(made.frozen["config"], made.kept_state, files)


def _made_with(one: Generation, other: Generation) -> list[Difference]:
    """Return in what the releases that both were made with differ: Spark, Delta, Python and others."""
    old, new = (dict(made.frozen.get("versions", {})) for made in (one, other))
    names = sorted(old.keys() | new.keys())
    return [Difference(name, old.get(name, ""), new.get(name, "")) for name in names if old.get(name) != new.get(name)]


def _lines(one: Bundle, other: Bundle, old: Generation, new: Generation) -> Iterable[str]:
    for path in sorted(one.files.keys() | other.files.keys()):
        if one.files.get(path) != other.files.get(path):
            before, after = bundle.text(one, path).splitlines(), bundle.text(other, path).splitlines()
            labels = f"{old.job_id}/{path}", f"{new.job_id}/{path}"
            yield from difflib.unified_diff(before, after, labels[0], labels[1], lineterm="")
