"""Who did what."""

from alembic import op

from rewind.registry import schema

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    # A registry that was made with this release has the table from the first migration on.
    schema.audit.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
