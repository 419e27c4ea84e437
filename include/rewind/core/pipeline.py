"""A declared pipeline, as a value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rewind.core.errors import RefusedError
from rewind.core.times import parse_duration

KAFKA, DELTA = "kafka", "delta"

KEEP, TOMBSTONE = "keep", "tombstone"
"""What becomes of a key of a shared output that a new live job does not have."""

UNBOUNDED = "unbounded"
"""The state horizon of a pipeline whose results may depend on any record before them."""


@dataclass(frozen=True)
class ExpectedChange:
    """A column of the output that a rewind is expected to change.

    Attributes:
        column: Name of the output column.
        rule: SQL predicate over the structs `live` and `candidate` that says how; empty allows any change.
    """

    column: str
    rule: str = ""


VOLATILE, TOLERANCE, UNORDERED, INSTANT = "volatile", "tolerance", "unordered", "instant"
"""How values of a column may differ and still be equal."""


@dataclass(frozen=True)
class ColumnRule:
    """When two values of an output column are equal although they are not the same.

    Attributes:
        column: Name of the output column.
        kind: `VOLATILE`: any two are, if both outputs have the column with one type. `TOLERANCE`: numbers that lie near
            each other. `UNORDERED`: arrays of the same elements, each as often. `INSTANT`: texts of one instant.
        relative: With `TOLERANCE`, by which share of the larger magnitude they may differ.
        absolute: With `TOLERANCE`, by how much they may differ at least.
    """

    column: str
    kind: str
    relative: float = 0.0
    absolute: float = 0.0


APPEAR, VANISH, LEAVE, ENTER = "appear", "vanish", "leave_dead_letters", "enter_dead_letters"
"""What may become of a row as a whole."""


@dataclass(frozen=True)
class RowRule:
    """Rows that a rewind is expected to add, to lose, or to move into or out of the dead letters.

    Attributes:
        change: `APPEAR`: a row that live lacks; `VANISH`: one that the candidate lacks; `LEAVE`: live alone has a dead
            letter; `ENTER`: the candidate alone has one.
        rule: SQL predicate that says which: over the structs `live` and `candidate`, null where that side has no row,
            and of the dead letter `reason` and `record`, its texts.
        least: How many there are at least.
        most: How many there are at most; None for any number.
    """

    change: str
    rule: str
    least: int = 0
    most: int | None = None

    @property
    def label(self) -> str:
        """How it is named in what a comparison counts."""
        return f"{self.change}: {self.rule}"

    def miscounted(self, found: int) -> int:
        """Return how many of the rows found are too many, or how many more there should be."""
        return max(self.least - found, 0 if self.most is None else found - self.most, 0)


@dataclass(frozen=True)
class Pipeline:
    """What a `pipeline.yaml` says, with its defaults filled in.

    Attributes:
        name: Name of the folder, and first part of its job ids.
        source_topic: The topic it reads.
        schema: Spark DDL of the parsed columns.
        required: Parsed columns that must not be null; a record that lacks one is rejected.
        transactional: Whether the source is written by transactions, whose markers leave offsets without records.
        isolation: Kafka isolation level, the same for live, mirror and candidate.
        output_topic: Base name of the output; a generation's topic or table is `<base>-g<N>`.
        output_format: `KAFKA` or `DELTA`: whether that is a topic or a table.
        output_key: Columns that make the output key as JSON; empty keeps the source key.
        session_time_zone: Zone in which zone-less texts are read and JSON texts are written.
        stateful: Whether the logic may keep state.
        state_horizon: How much event time may lie between two records that touch one result, lateness included: an ISO
            8601 duration, or `UNBOUNDED`; empty for a stateless pipeline.
        closes_at: SQL expression over the parsed columns: when the first result that a record counts for closes. The
            record is late when the watermark for late rows has reached that instant.
        output_mode: Spark's output mode, `append` or `update`.
        result_starts: Output column with the first instant of event time that a result covers.
        result_ends: Output column with the instant from which a result is closed, once the watermark has reached it.
        shared: Whether the live job also publishes into one output of the pipeline's own, `names.shared_output`.
        vanished: `KEEP` or `TOMBSTONE`: what becomes there of keys that only an older job has, at or after the start of
            the job that becomes live. Older ones are always kept.
        several_rows: Whether one record may give several rows.
        functions: Names of the functions of Python in its logic that answer from their arguments alone.
        trigger_seconds: Pause between micro-batches of the stream.
        max_offsets: Most offsets in one micro-batch.
        chunk_records: Offsets in one backfill chunk.
        lag_gate: Most offsets a candidate may lie behind live to pass `catch_up`, and a backfill behind
            Kafka's end before it fixes its handoff.
        late_share: Share of the compared results that may differ by what was late, and a verdict still pass.
        null_share: By how much the share of nulls in a column of the candidate may exceed live's.
        expected: Columns expected to change.
        rules: Columns whose values may be equal without being the same, each once.
        row_rules: Rows expected to come, to go, or to move into or out of the dead letters; the first one met counts.
        four_eyes: Whether a rewind is approved by another person than the one who asked for it.
        auto_approve_by: Names of those whose rewinds a passing verdict may approve; None for everybody's.
        nightly_partitions: Source partitions that a nightly replay takes; none for all.
        nightly_share: Share of the keys that it takes.
        expectations: What Great Expectations is asked of its output and of the differences (`declared.expectations`).
        exact: Whether values are read and written by the rules of docs/values.md, and logic is held to docs/logic.md. A
            configuration that an older release froze has it not: its readings were lenient, its texts ended at the
            millisecond, and its logic may be any.
    """

    name: str
    source_topic: str
    schema: str
    output_topic: str
    required: tuple[str, ...] = ()
    transactional: bool = False
    isolation: str = "read_committed"
    output_key: tuple[str, ...] = ()
    session_time_zone: str = "UTC"
    stateful: bool = False
    state_horizon: str = ""
    closes_at: str = ""
    output_mode: str = "append"
    output_format: str = "kafka"
    result_starts: str = ""
    result_ends: str = ""
    shared: bool = False
    vanished: str = KEEP
    several_rows: bool = False
    functions: tuple[str, ...] = ()
    trigger_seconds: float = 1.0
    max_offsets: int = 200_000
    chunk_records: int = 500_000
    lag_gate: int = 5_000
    late_share: float = 1.0
    null_share: float = 0.01
    expected: tuple[ExpectedChange, ...] = ()
    rules: tuple[ColumnRule, ...] = ()
    row_rules: tuple[RowRule, ...] = ()
    four_eyes: bool = False
    auto_approve_by: tuple[str, ...] | None = None
    nightly_partitions: tuple[int, ...] = ()
    nightly_share: float = 1.0
    expectations: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    exact: bool = True

    @property
    def horizon_milliseconds(self) -> int | None:
        """The state horizon in milliseconds; None for one without bound."""
        if self.state_horizon == UNBOUNDED:
            return None
        return int(parse_duration(self.state_horizon, "state_horizon").total_seconds() * 1000)

    def frozen(self) -> dict[str, Any]:
        """Return a value from which `from_frozen` makes this pipeline again; JSON leaves it as it is."""
        frozen: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return frozen

    @classmethod
    def from_frozen(cls, body: Mapping[str, Any]) -> Pipeline:
        """Return the pipeline of a frozen configuration.

        Raises:
            RefusedError: It holds a setting that this release does not know.
        """
        fields = dict(body)
        if unknown := fields.keys() - cls.__dataclass_fields__.keys():
            problem = f"the frozen configuration holds {', '.join(sorted(unknown))}, which this release does not know"
            raise RefusedError("config", problem, "Use the release that froze it, or a newer one")
        fields.setdefault("exact", False)
        fields["required"] = tuple(fields["required"])
        fields["output_key"] = tuple(fields["output_key"])
        fields["functions"] = tuple(fields.get("functions", ()))
        fields["expected"] = tuple(ExpectedChange(**change) for change in fields["expected"])
        fields["rules"] = tuple(ColumnRule(**rule) for rule in fields.get("rules", ()))
        if fields.get("auto_approve_by") is not None:
            fields["auto_approve_by"] = tuple(fields["auto_approve_by"])
        fields["nightly_partitions"] = tuple(fields.get("nightly_partitions", ()))
        fields["row_rules"] = tuple(RowRule(**rule) for rule in fields.get("row_rules", ()))
        return cls(**fields)
