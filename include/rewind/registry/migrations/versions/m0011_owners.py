"""The owner of each name; of one that several list, the first is recorded, and `owners.contested` tells the others."""

from alembic import op

from rewind.registry import owners, schema

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    connection = op.get_bind()
    # A registry that was made with this release has the table from the first migration on.
    schema.owners.create(connection, checkfirst=True)
    owners.adopt(connection)


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
