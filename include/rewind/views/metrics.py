"""The state as metrics in Prometheus' text format: the view of `status`, and counts over the whole history.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rewind.core import lifecycle, names
from rewind.core.errors import RefusedError, RetryError
from rewind.core.model import TopicReader
from rewind.core.offsets import Ranges, total
from rewind.core.settings import Settings
from rewind.registry.snapshot import snapshot
from rewind.runtime.drivers.driver_state import Driver
from rewind.views import counters, status
from rewind.views.counters import Totals
from rewind.views.status import Status
from rewind.views.status_backfill import Backfill
from rewind.views.status_jobs import Job
from rewind.views.status_nights import NightView, last_answer
from rewind.views.status_rewinds import RewindView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGE, COUNTER = "gauge", "counter"

Value = float | int | None
Samples = Iterable[tuple[Mapping[str, str], Value]]
"""Labels and value of each sample; one whose value is unknown is left out."""


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name.
        kind: gauge or counter.
        text: What it says, and in what unit.
        samples: Reads its samples of the state.
    """

    name: str
    kind: str
    text: str
    samples: Callable[[Status, Totals], Samples]


def read(settings: Settings, broker: TopicReader | None, part: Callable[[Status], Status] = lambda found: found) -> str:
    """Return the metrics of an installation; a registry that cannot be read is a metric, not an error.

    Args:
        settings: The installation.
        broker: Where Kafka's ends are read; None when it is known to be away.
        part: What of the state the metrics are of.
    """
    # Of what was collected, and of older rewinds, only the counts are told.
    found = part(status.read(settings, broker, collected=False, recent=1))
    try:
        with snapshot(settings.registry_url) as connection:
            counted = counters.read(connection)
    except (RefusedError, RetryError):
        counted = Totals()
    return exposition(found, counted.of({view.name for view in found.pipelines}))


def exposition(found: Status, counted: Totals) -> str:
    """Return the metrics of a state as text, each with what it says and its kind before its samples."""
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, metric.samples(found, counted)))


def _lines(metric: Metric, samples: Samples) -> Iterator[str]:
    yield f"# HELP {metric.name} {_escaped(metric.text)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in samples:
        if value is not None:
            pairs = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items())
            # A whole number is written out: its readers may be more exact than a float.
            yield f"{metric.name}{f'{{{pairs}}}' if pairs else ''} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _of_jobs(value: Callable[[Job], Value]) -> Callable[[Status, Totals], Samples]:
    def samples(found: Status, _: Totals) -> Samples:
        # What is over would stay in every scrape for ever.
        return (
            ({"pipeline": p.name, "job": job.job_id, "state": job.state}, value(job))
            for p in found.pipelines
            for job in p.jobs
            if job.state not in lifecycle.OVER
        )

    return samples


def _drivers(found: Status) -> Iterator[tuple[str, Driver]]:
    yield from ((j.job_id, j.driver) for p in found.pipelines for j in p.jobs if j.state not in lifecycle.OVER)
    yield from ((names.mirror_owner(mirror.topic), mirror.driver) for mirror in found.mirrors)


def _active(found: Status) -> Iterator[tuple[dict[str, str], RewindView]]:
    for p in found.pipelines:
        yield from (({"pipeline": p.name, "rewind": r.id}, r) for r in p.rewinds if r.state == lifecycle.ACTIVE)


def _of_backfills(value: Callable[[Backfill], Value]) -> Callable[[Status, Totals], Samples]:
    return lambda found, _: ((labels, value(r.backfill)) for labels, r in _active(found) if r.backfill is not None)


def _steps(found: Status, _: Totals) -> Samples:
    return (({**labels, "step": s.name, "state": s.state}, 1) for labels, r in _active(found) for s in r.steps)


def _verdict_rows(found: Status, _: Totals) -> Samples:
    return (
        ({"pipeline": p.name, "rewind": newest.id, "class": name}, number)
        for p in found.pipelines
        for newest in p.rewinds[:1]
        if newest.verdict is not None
        for name, number in newest.verdict.counts.items()
    )


def _newest_nights(found: Status) -> Iterator[tuple[dict[str, str], NightView]]:
    last = ((p.name, last_answer(p.nights)) for p in found.pipelines)
    yield from (({"pipeline": name, "night": night.label}, night) for name, night in last if night is not None)


def _nights(found: Status, _: Totals) -> Samples:
    return (({**labels, "state": night.state}, 1) for labels, night in _newest_nights(found))


def _differing(found: Status, _: Totals) -> Samples:
    return ((labels, night.different) for labels, night in _newest_nights(found))


def _counted(counts: Callable[[Totals], Mapping[tuple[str, ...], int]], *labels: str) -> Callable[..., Samples]:
    return lambda _, counted: ((dict(zip(labels, by, strict=True)), n) for by, n in counts(counted).items())


def _held(held: Ranges | None) -> int | None:
    return None if held is None else total(held)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.replace(tzinfo=UTC).timestamp()


METRICS = (
    Metric(
        "rewind_registry_up", GAUGE, "Whether the registry could be read.", lambda s, _: [({}, int(s.registry_read))]
    ),
    Metric("rewind_problems", GAUGE, "Things that could not be read.", lambda s, _: [({}, len(s.problems))]),
    Metric(
        "rewind_pipeline_broken",
        GAUGE,
        "Whether the folder of a pipeline cannot be used.",
        lambda s, _: (({"pipeline": p.name}, int(bool(p.problem))) for p in s.pipelines),
    ),
    Metric(
        "rewind_epoch",
        GAUGE,
        "Epoch of the live pointer; it grows by one with each switch.",
        lambda s, _: (({"pipeline": p.name}, p.epoch) for p in s.pipelines if p.live),
    ),
    Metric(
        "rewind_job_lag_offsets",
        GAUGE,
        "Offsets between position and the end of what was written.",
        _of_jobs(lambda j: j.lag),
    ),
    Metric(
        "rewind_job_held_back_offsets",
        GAUGE,
        "Offsets of its topic that it cannot read yet: an open transaction holds them back.",
        _of_jobs(lambda j: _held(j.held)),
    ),
    Metric("rewind_job_records_per_second", GAUGE, "Records a second, last minute.", _of_jobs(lambda j: j.rate)),
    Metric(
        "rewind_job_position_offsets",
        GAUGE,
        "Next offset to read, summed over the partitions.",
        _of_jobs(lambda j: sum(j.position.values())),
    ),
    Metric(
        "rewind_job_last_batch_timestamp_seconds",
        GAUGE,
        "When its last batch was committed.",
        _of_jobs(lambda j: _seconds(j.last_batch_at)),
    ),
    Metric(
        "rewind_job_watermark_timestamp_seconds",
        GAUGE,
        "Results that end at or before it are closed; none for a job without state.",
        _of_jobs(lambda j: _seconds(j.watermark.at) if j.watermark else None),
    ),
    Metric(
        "rewind_job_watermark_stuck",
        GAUGE,
        "Whether it has stood still for a minute; `status` says why, and what helps.",
        _of_jobs(lambda j: int(j.watermark.stuck) if j.watermark else None),
    ),
    Metric(
        "rewind_driver_state",
        GAUGE,
        "1 for the state that the driver of a stream is in.",
        lambda s, _: (({"owner": owner, "state": d.state}, 1) for owner, d in _drivers(s)),
    ),
    Metric(
        "rewind_driver_failures",
        GAUGE,
        "Failures of a stream's drivers since the last healthy hour.",
        lambda s, _: (({"owner": owner}, d.failures) for owner, d in _drivers(s)),
    ),
    Metric(
        "rewind_mirror_lag_offsets",
        GAUGE,
        "Offsets between the mirror's position and the end of what was written.",
        lambda s, _: (({"topic": m.topic}, m.lag) for m in s.mirrors),
    ),
    Metric(
        "rewind_mirror_held_back_offsets",
        GAUGE,
        "Offsets of the topic that its mirror cannot read yet: an open transaction holds them back.",
        lambda s, _: (({"topic": m.topic}, _held(m.held)) for m in s.mirrors),
    ),
    Metric(
        "rewind_mirror_records",
        GAUGE,
        "Records that a mirror holds.",
        lambda s, _: (({"topic": m.topic}, m.records) for m in s.mirrors),
    ),
    Metric(
        "rewind_mirror_last_commit_timestamp_seconds",
        GAUGE,
        "When a mirror last committed.",
        lambda s, _: (({"topic": m.topic}, _seconds(m.committed_at)) for m in s.mirrors),
    ),
    Metric("rewind_step_state", GAUGE, "1 for the state that a step of an active rewind is in.", _steps),
    Metric(
        "rewind_waits",
        GAUGE,
        "Whether an active rewind waits for something; `status` says for what.",
        lambda s, _: ((labels, int(bool(r.waits))) for labels, r in _active(s)),
    ),
    Metric("rewind_backfill_offsets", GAUGE, "Offsets that all chunks span.", _of_backfills(lambda b: b.offsets)),
    Metric(
        "rewind_backfill_done_offsets",
        GAUGE,
        "Offsets that finished chunks span.",
        _of_backfills(lambda b: b.offsets_done),
    ),
    Metric("rewind_backfill_records_per_second", GAUGE, "Records a second.", _of_backfills(lambda b: b.rate)),
    Metric("rewind_verdict_rows", GAUGE, "Rows by class in the newest verdict of the newest rewind.", _verdict_rows),
    Metric("rewind_night_state", GAUGE, "1 for the state of the newest nightly replay that was tried.", _nights),
    Metric(
        "rewind_night_different_rows",
        GAUGE,
        "Rows of the newest nightly replay that differ from what live wrote.",
        _differing,
    ),
    Metric("rewind_rewinds", GAUGE, "Rewinds by state.", _counted(lambda t: t.rewinds, "pipeline", "state")),
    Metric("rewind_verdicts_total", COUNTER, "Verdicts.", _counted(lambda t: t.verdicts, "pipeline", "verdict")),
    Metric(
        "rewind_deletions_total",
        COUNTER,
        "Lines of the deletions ledger.",
        _counted(lambda t: t.deletions, "pipeline", "kind", "result"),
    ),
    Metric(
        "rewind_garbage_things",
        GAUGE,
        "Things that are left of a job that is no longer needed.",
        lambda s, _: (({"pipeline": p.name, "job": g.job_id}, len(g.things)) for p in s.pipelines for g in p.garbage),
    ),
    Metric(
        "rewind_garbage_due_timestamp_seconds",
        GAUGE,
        "When they may be deleted; none for at once.",
        lambda s, _: (
            ({"pipeline": p.name, "job": g.job_id}, _seconds(g.due_at)) for p in s.pipelines for g in p.garbage
        ),
    ),
)
"""All metrics, in the order of the text."""
