"""Both watermarks of each batch of a stream."""

import sqlalchemy
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # A registry that was made with this release has the columns from the first migration on.
    there = {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("progress")}
    for name in ("late_watermark", "closing_watermark"):
        if name not in there:
            op.add_column("progress", sqlalchemy.Column(name, sqlalchemy.BigInteger))


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
