"""What nightly replays found; changes of it are counted as those of the other tables."""

from alembic import op

from rewind.registry.migrations.versions.m0007_changes import triggers
from rewind.registry.schema import nights

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    connection = op.get_bind()
    # A registry that was made with this release has the table from the first migration on.
    nights.create(connection, checkfirst=True)
    for statement in triggers(connection.dialect.name, nights.name, ""):
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
