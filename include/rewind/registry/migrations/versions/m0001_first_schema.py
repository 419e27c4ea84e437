"""The first schema, as it was released: written out, so that no later change of the tables changes what it makes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "announcements",
        sa.Column("pipeline", sa.String(length=249), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("published_at", sa.DateTime()),
        sa.Column("asset_at", sa.DateTime()),
        sa.PrimaryKeyConstraint("pipeline", "epoch"),
    )
    op.create_table(
        "approvals",
        sa.Column("rewind_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("answer", sa.String(length=8), nullable=False),
        sa.Column("person", sa.String(length=249), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("rewind_id", "attempt"),
    )
    op.create_table(
        "chunks",
        sa.Column("rewind_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("ranges", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("rows", sa.BigInteger()),
        sa.Column("repeats", sa.BigInteger()),
        sa.Column("started_at", sa.DateTime()),
        sa.Column("ended_at", sa.DateTime()),
        sa.PrimaryKeyConstraint("rewind_id", "number"),
    )
    op.create_table(
        "controls",
        sa.Column("rewind_id", sa.String(length=64), nullable=False),
        sa.Column("paused", sa.Integer(), nullable=False),
        sa.Column("records_per_second", sa.Integer()),
        sa.PrimaryKeyConstraint("rewind_id"),
    )
    op.create_table(
        "deletions",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(length=249), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=1024), nullable=False),
        sa.Column("resource_id", sa.String(length=249)),
        sa.Column("result", sa.String(length=16), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "facts",
        sa.Column("rewind_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("rewind_id", "name"),
    )
    op.create_table(
        "generations",
        sa.Column("job_id", sa.String(length=249), nullable=False),
        sa.Column("pipeline", sa.String(length=249), nullable=False),
        sa.Column("kind", sa.String(length=1), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("rewind_id", sa.String(length=64)),
        sa.Column("topic_id", sa.String(length=64), nullable=False),
        sa.Column("bundle", sa.String(length=64), nullable=False),
        sa.Column("frozen", sa.JSON(), nullable=False),
        sa.Column("start", sa.JSON(), nullable=False),
        sa.Column("handoff", sa.JSON()),
        sa.Column("output_topic", sa.String(length=249), nullable=False),
        sa.Column("dead_letter_topic", sa.String(length=249), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("grace_until", sa.DateTime()),
        sa.PrimaryKeyConstraint("job_id"),
        sa.UniqueConstraint("pipeline", "kind", "number"),
    )
    op.create_index(
        "one_candidate",
        "generations",
        ["pipeline"],
        unique=True,
        sqlite_where=sa.text("state = 'candidate'"),
        postgresql_where=sa.text("state = 'candidate'"),
    )
    op.create_index(
        "one_live",
        "generations",
        ["pipeline"],
        unique=True,
        sqlite_where=sa.text("state = 'live'"),
        postgresql_where=sa.text("state = 'live'"),
    )
    op.create_table(
        "leases",
        sa.Column("owner", sa.String(length=249), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("holder", sa.JSON()),
        sa.Column("renewed_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("owner"),
    )
    op.create_table(
        "manifest",
        sa.Column("job_id", sa.String(length=249), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=1024), nullable=False),
        sa.Column("resource_id", sa.String(length=249)),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "kind", "name"),
    )
    op.create_table(
        "mirror_commits",
        sa.Column("topic", sa.String(length=249), nullable=False),
        sa.Column("topic_id", sa.String(length=64), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("ranges", sa.JSON(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("holes", sa.JSON(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("topic", "topic_id", "version"),
    )
    op.create_table(
        "mirror_deletions",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("topic", sa.String(length=249), nullable=False),
        sa.Column("topic_id", sa.String(length=64), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "plans",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("pipeline", sa.String(length=249), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "progress",
        sa.Column("owner", sa.String(length=249), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("start", sa.JSON(), nullable=False),
        sa.Column("end", sa.JSON(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "batch"),
    )
    op.create_table("protocol", sa.Column("number", sa.Integer(), nullable=False), sa.PrimaryKeyConstraint("number"))
    op.create_table(
        "steps",
        sa.Column("rewind_id", sa.String(length=64), nullable=False),
        sa.Column("step", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("ended_at", sa.DateTime()),
        sa.Column("cpu_seconds", sa.Float()),
        sa.Column("evidence", sa.JSON()),
        sa.PrimaryKeyConstraint("rewind_id", "step", "attempt"),
    )
    op.create_table(
        "streams",
        sa.Column("owner", sa.String(length=249), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("wish", sa.String(length=16), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("last_failure", sa.Text()),
        sa.Column("next_start_at", sa.DateTime()),
        sa.Column("quarantined_at", sa.DateTime()),
        sa.Column("launched", sa.JSON()),
        sa.Column("launched_at", sa.DateTime()),
        sa.PrimaryKeyConstraint("owner"),
    )
    op.create_table(
        "verdicts",
        sa.Column("rewind_id", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("backfill_attempt", sa.Integer(), nullable=False),
        sa.Column("verdict", sa.String(length=8), nullable=False),
        sa.Column("floor", sa.JSON(), nullable=False),
        sa.Column("ceiling", sa.JSON(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("sample", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("rewind_id", "attempt"),
    )
    op.create_table(
        "pointers",
        sa.Column("pipeline", sa.String(length=249), nullable=False),
        sa.Column("job_id", sa.String(length=249), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("moved_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["generations.job_id"],
        ),
        sa.PrimaryKeyConstraint("pipeline"),
    )
    op.create_table(
        "rewinds",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("pipeline", sa.String(length=249), nullable=False),
        sa.Column("plan_id", sa.String(length=16), nullable=False),
        sa.Column("job_id", sa.String(length=249), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("ended_at", sa.DateTime()),
        sa.ForeignKeyConstraint(
            ["plan_id"],
            ["plans.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "one_active",
        "rewinds",
        ["pipeline"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.execute("INSERT INTO protocol (number) VALUES (1)")


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
