"""The first schema.

The tables are those of `rewind.registry.schema` when this migration was written; later migrations add to them.
"""

from alembic import op

from rewind.registry.schema import PROTOCOL, metadata, protocol

revision = "0001"
down_revision = None


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection)
    connection.execute(protocol.insert().values(number=PROTOCOL))


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
