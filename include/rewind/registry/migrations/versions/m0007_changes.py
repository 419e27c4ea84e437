"""A counter of changes, kept by triggers: what an older bundle writes is counted too."""

import sqlalchemy
from alembic import op

from rewind.registry.schema import changes

revision = "0007"
down_revision = "0006"

# A lease is renewed all the time, which changes nothing that is shown.
WATCHED = {
    "generations": "",
    "pointers": "",
    "rewinds": "",
    "steps": "",
    "facts": "",
    "chunks": "",
    "verdicts": "",
    "approvals": "",
    "streams": "",
    "leases": " OF token, holder",
    "progress": "",
    "controls": "",
    "manifest": "",
    "deletions": "",
    "mirror_commits": "",
    "mirror_proofs": "",
}
COUNT = "UPDATE changes SET number = number + 1"


def upgrade() -> None:
    connection = op.get_bind()
    # A registry that was made with this release has the table from the first migration on.
    changes.create(connection, checkfirst=True)
    if connection.execute(sqlalchemy.select(changes)).first() is None:
        connection.execute(sqlalchemy.insert(changes).values(number=0))
    if connection.dialect.name == "postgresql":
        body = f"BEGIN {COUNT}; RETURN NULL; END"
        op.execute(f"CREATE OR REPLACE FUNCTION rewind_changed() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
    for table, columns in WATCHED.items():
        for statement in triggers(connection.dialect.name, table, columns):
            op.execute(statement)


def triggers(dialect: str, table: str, columns: str) -> list[str]:
    if dialect == "postgresql":
        when = f"AFTER INSERT OR DELETE OR UPDATE{columns}"
        return [
            f"CREATE OR REPLACE TRIGGER changed_{table} {when} ON {table} EXECUTE FUNCTION rewind_changed()",
        ]
    events = {"insert": "INSERT", "delete": "DELETE", "update": f"UPDATE{columns}"}
    return [
        f"CREATE TRIGGER IF NOT EXISTS changed_{table}_{name} AFTER {event} ON {table} BEGIN {COUNT}; END"
        for name, event in events.items()
    ]


def downgrade() -> None:
    raise NotImplementedError("migrations only add: restore a backup instead")
