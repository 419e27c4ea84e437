"""Drivers that an operator has declared dead."""

from alembic import op

from rewind.registry.schema import deaths

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # A registry that was made with this release has the table from the first migration on.
    deaths.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
