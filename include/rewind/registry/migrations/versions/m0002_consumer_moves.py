"""Moves of consumer groups from one output to another."""

from alembic import op

from rewind.registry.schema import consumer_moves

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # A registry that was made with this release has the table from the first migration on.
    consumer_moves.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
