"""Shared outputs, and what each epoch has published into them."""

from alembic import op

from rewind.registry.schema import publications, shared_outputs

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # A registry that was made with this release has the tables from the first migration on.
    for table in (shared_outputs, publications):
        table.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
