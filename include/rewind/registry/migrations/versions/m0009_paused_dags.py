"""Of each stream the DAG that supervises it, while that is paused."""

import sqlalchemy
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    # A registry that was made with this release has the column from the first migration on.
    there = {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("streams")}
    if "paused_dag" not in there:
        op.add_column("streams", sqlalchemy.Column("paused_dag", sqlalchemy.String(249)))


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
