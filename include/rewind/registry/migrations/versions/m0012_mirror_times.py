"""Earliest and latest Kafka timestamp of each commit of a mirror; null for those of older releases."""

import sqlalchemy
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    # A registry that was made with this release has the column from the first migration on.
    there = {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("mirror_commits")}
    if "times" not in there:
        op.add_column("mirror_commits", sqlalchemy.Column("times", sqlalchemy.JSON(none_as_null=True)))


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
