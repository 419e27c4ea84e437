"""What proofs of mirrors found."""

from alembic import op

from rewind.registry.schema import mirror_proofs

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    # A registry that was made with this release has the table from the first migration on.
    mirror_proofs.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
