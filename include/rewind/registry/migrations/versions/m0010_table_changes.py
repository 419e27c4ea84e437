"""How far the logs of tables were looked at, and what others did to these tables."""

from alembic import op

from rewind.registry.schema import table_changes, table_sights

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    connection = op.get_bind()
    # A registry that was made with this release has the tables from the first migration on.
    for table in (table_sights, table_changes):
        table.create(connection, checkfirst=True)


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
