"""Tables of the registry. Their constraints hold what must never happen.

A migration only adds (see `migrations/`); `PROTOCOL` grows when an older bundle could no longer write
correctly, and a driver refuses a registry with a higher number than its own.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy import Text as _Text

PROTOCOL = 1


class Text(TypeDecorator[str]):
    """What people write and logs say: it may hold NUL characters, which PostgreSQL refuses in any text."""

    impl = _Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the text with each NUL as the character that stands for what cannot be shown."""
        return value if value is None else value.replace("\0", "\ufffd")


metadata = MetaData()

protocol = Table("protocol", metadata, Column("number", Integer, primary_key=True))

changes = Table("changes", metadata, Column("number", BigInteger, nullable=False))

generations = Table(
    "generations",
    metadata,
    Column("job_id", String(249), primary_key=True),
    Column("pipeline", String(249), nullable=False),
    Column("kind", String(1), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("rewind_id", String(64)),
    Column("topic_id", String(64), nullable=False),
    Column("bundle", String(64), nullable=False),
    Column("frozen", JSON, nullable=False),
    Column("start", JSON, nullable=False),
    Column("handoff", JSON(none_as_null=True)),
    Column("output_topic", String(249), nullable=False),
    Column("dead_letter_topic", String(249), nullable=False),
    Column("created_at", DateTime, nullable=False),
    Column("grace_until", DateTime),
    UniqueConstraint("pipeline", "kind", "number"),
)
for _state in ("live", "candidate"):
    _only = text(f"state = '{_state}'")
    Index(f"one_{_state}", generations.c.pipeline, unique=True, sqlite_where=_only, postgresql_where=_only)

pointers = Table(
    "pointers",
    metadata,
    Column("pipeline", String(249), primary_key=True),
    Column("job_id", String(249), ForeignKey("generations.job_id"), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("moved_at", DateTime, nullable=False),
)

plans = Table(
    "plans",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("pipeline", String(249), nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", DateTime, nullable=False),
)

rewinds = Table(
    "rewinds",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("pipeline", String(249), nullable=False),
    Column("plan_id", String(16), ForeignKey("plans.id"), nullable=False),
    Column("job_id", String(249), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", DateTime, nullable=False),
    Column("ended_at", DateTime),
)
_active = text("state = 'active'")
Index("one_active", rewinds.c.pipeline, unique=True, sqlite_where=_active, postgresql_where=_active)

steps = Table(
    "steps",
    metadata,
    Column("rewind_id", String(64), primary_key=True),
    Column("step", String(32), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("started_at", DateTime, nullable=False),
    Column("ended_at", DateTime),
    Column("cpu_seconds", Float),
    Column("evidence", JSON(none_as_null=True)),
)

facts = Table(
    "facts",
    metadata,
    Column("rewind_id", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("value", JSON, nullable=False),
    Column("at", DateTime, nullable=False),
)

chunks = Table(
    "chunks",
    metadata,
    Column("rewind_id", String(64), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("wave", Integer, nullable=False),
    Column("ranges", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("rows", BigInteger),
    Column("repeats", BigInteger),
    Column("started_at", DateTime),
    Column("ended_at", DateTime),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("rewind_id", String(64), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("backfill_attempt", Integer, nullable=False),
    Column("verdict", String(8), nullable=False),
    Column("floor", JSON, nullable=False),
    Column("ceiling", JSON, nullable=False),
    Column("counts", JSON, nullable=False),
    Column("sample", JSON, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", DateTime, nullable=False),
)

approvals = Table(
    "approvals",
    metadata,
    Column("rewind_id", String(64), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("answer", String(8), nullable=False),
    Column("person", String(249), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", DateTime, nullable=False),
)

streams = Table(
    "streams",
    metadata,
    Column("owner", String(249), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("wish", String(16), nullable=False),
    Column("starts", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("last_failure", Text),
    Column("next_start_at", DateTime),
    Column("quarantined_at", DateTime),
    Column("launched", JSON(none_as_null=True)),
    Column("launched_at", DateTime),
    Column("paused_dag", String(249)),
)

leases = Table(
    "leases",
    metadata,
    Column("owner", String(249), primary_key=True),
    Column("token", Integer, nullable=False),
    Column("holder", JSON(none_as_null=True)),
    Column("renewed_at", DateTime, nullable=False),
)

progress = Table(
    "progress",
    metadata,
    Column("owner", String(249), primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    Column("token", Integer, nullable=False),
    Column("start", JSON, nullable=False),
    Column("end", JSON, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("late_watermark", BigInteger),
    Column("closing_watermark", BigInteger),
    Column("at", DateTime, nullable=False),
)

controls = Table(
    "controls",
    metadata,
    Column("rewind_id", String(64), primary_key=True),
    Column("paused", Integer, nullable=False),
    Column("records_per_second", Integer),
)

manifest = Table(
    "manifest",
    metadata,
    Column("job_id", String(249), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("name", String(1024), primary_key=True),
    Column("resource_id", String(249)),
    Column("state", String(16), nullable=False),
)

deletions = Table(
    "deletions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(249), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("name", String(1024), nullable=False),
    Column("resource_id", String(249)),
    Column("result", String(16), nullable=False),
    Column("detail", Text, nullable=False),
    Column("at", DateTime, nullable=False),
)

owners = Table(
    "owners",
    metadata,
    Column("space", String(16), primary_key=True),
    Column("key", String(249), primary_key=True),
    Column("name", String(249), nullable=False),
    Column("owner", String(300), nullable=False),
    Column("at", DateTime, nullable=False),
)

mirror_commits = Table(
    "mirror_commits",
    metadata,
    Column("topic", String(249), primary_key=True),
    Column("topic_id", String(64), primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("ranges", JSON, nullable=False),
    Column("counts", JSON, nullable=False),
    Column("holes", JSON, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("times", JSON(none_as_null=True)),
    Column("at", DateTime, nullable=False),
)

mirror_deletions = Table(
    "mirror_deletions",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("topic", String(249), nullable=False),
    Column("topic_id", String(64), nullable=False),
    Column("partition", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", DateTime, nullable=False),
)

mirror_proofs = Table(
    "mirror_proofs",
    metadata,
    Column("proof_id", String(64), primary_key=True),
    Column("topic", String(249), nullable=False),
    Column("topic_id", String(64), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("ranges", JSON, nullable=False),
    Column("holds_for", JSON, nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("counts", JSON, nullable=False),
    Column("told", JSON, nullable=False),
    Column("asked_by", String(64), nullable=False),
    Column("at", DateTime, nullable=False),
)

table_sights = Table(
    "table_sights",
    metadata,
    Column("name", String(300), primary_key=True),
    Column("table_id", String(64), primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("mark", String(64), nullable=False),
    Column("delta_id", String(64), nullable=False),
    Column("columns", JSON, nullable=False),
    Column("at", DateTime, nullable=False),
)

table_changes = Table(
    "table_changes",
    metadata,
    Column("name", String(300), primary_key=True),
    Column("table_id", String(64), primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("operation", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("restored", BigInteger),
    Column("rows", BigInteger),
)

nights = Table(
    "nights",
    metadata,
    Column("replay_id", String(249), primary_key=True),
    Column("pipeline", String(249), nullable=False),
    Column("number", Integer, nullable=False),
    Column("label", String(10), nullable=False),
    Column("start_at", DateTime, nullable=False),
    Column("end_at", DateTime, nullable=False),
    Column("sample", JSON, nullable=False),
    Column("sample_hash", String(16), nullable=False),
    Column("ranges", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("job_id", String(249)),
    Column("reason", Text, nullable=False),
    Column("counts", JSON, nullable=False),
    Column("fields", JSON, nullable=False),
    Column("frontier", JSON(none_as_null=True)),
    Column("began_at", DateTime),
    Column("ended_at", DateTime),
    Column("scratch", Integer, nullable=False),
    UniqueConstraint("pipeline", "number"),
    UniqueConstraint("pipeline", "start_at", "end_at", "sample_hash"),
)

announcements = Table(
    "announcements",
    metadata,
    Column("pipeline", String(249), primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("body", JSON, nullable=False),
    Column("published_at", DateTime),
    Column("asset_at", DateTime),
)

consumer_moves = Table(
    "consumer_moves",
    metadata,
    Column("move_id", String(64), primary_key=True),
    Column("group", String(249), primary_key=True),
    Column("pipeline", String(249), nullable=False),
    Column("to_job", String(249), nullable=False),
    Column("to_topic", String(249), nullable=False),
    Column("body", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("detail", Text, nullable=False),
    Column("at", DateTime, nullable=False),
)

shared_outputs = Table(
    "shared_outputs",
    metadata,
    Column("pipeline", String(249), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("name", String(249), nullable=False, unique=True),
    Column("resource_id", String(249)),
    Column("at", DateTime, nullable=False),
)

publications = Table(
    "publications",
    metadata,
    Column("pipeline", String(249), primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("job_id", String(249), nullable=False),
    Column("going", BigInteger),
    Column("batch", BigInteger),
    Column("staged", JSON, nullable=False),
    Column("shared", JSON, nullable=False),
    Column("written", BigInteger, nullable=False),
    Column("repeated", BigInteger, nullable=False),
    Column("stale", BigInteger, nullable=False),
    Column("vanished", BigInteger, nullable=False),
    Column("held_by", String(64)),
    Column("stopped_at", DateTime),
    Column("at", DateTime, nullable=False),
)

deaths = Table(
    "deaths",
    metadata,
    Column("owner", String(249), primary_key=True),
    Column("token", Integer, primary_key=True),
    Column("holder", JSON, nullable=False),
    Column("person", String(249), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", DateTime, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", DateTime, nullable=False),
    Column("person", String(249), nullable=False),
    Column("action", String(64), nullable=False),
    Column("pipeline", String(249), nullable=False),
    Column("subject", String(249), nullable=False),
    Column("said", Text, nullable=False),
    # The run of a DAG that carried it out, so that a task that is tried again notes nothing twice.
    Column("run", String(600)),
    UniqueConstraint("run", "action"),
)
