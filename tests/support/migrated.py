"""Another release of the product: a copy of the checkout with a migration more, and if wished a higher protocol."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text

from rewind.registry import schema
from tests.support.workshop import PROJECT, Workshop

MIGRATION = '''"""What a later release adds."""

from alembic import op
from sqlalchemy import Column, Integer, String, update

from rewind.registry.schema import protocol

revision = "{revision}"
down_revision = "{before}"


def upgrade() -> None:
    for table in ("generations", "streams", "leases", "progress", "manifest"):
        op.add_column(table, Column("added_{revision}", String(16)))
    op.create_table("added_{revision}", Column("id", Integer, primary_key=True))
    op.get_bind().execute(update(protocol).values(number={protocol}))
'''


class Release:
    """A later release in a folder, used from there as its own checkout would."""

    def __init__(self, folder: Path, shop: Workshop) -> None:
        self._folder = folder
        self._shop = shop
        self._revision = _head()
        for part in ("include", "jobs"):
            shutil.copytree(PROJECT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))

    def migrate(self, revision: str, protocol: int = schema.PROTOCOL) -> None:
        """Add a migration to this release, with the protocol that it speaks, and bring the registry to it."""
        registry = self._folder / "include" / "rewind" / "registry"
        migration = MIGRATION.format(revision=revision, before=self._revision, protocol=protocol)
        (registry / "migrations" / "versions" / f"m{revision}_later.py").write_text(migration)
        declared = registry / "schema.py"
        line = f"PROTOCOL = {schema.PROTOCOL}\n"
        assert line in declared.read_text()
        declared.write_text(declared.read_text().replace(line, f"PROTOCOL = {protocol}\n"))
        self._revision = revision
        self.call("from rewind.registry import database; database.upgrade(s.registry_url)")

    def forget(self) -> None:
        """Let the registry take this release's migrations for not made: what they added hurts nobody."""
        with self._shop.registry() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :head"), {"head": _head()})

    def look(self, owner: str) -> str:
        """Supervise a stream once, and return what was seen."""
        return self.call(f"from rewind.runtime.drivers import supervise; print(supervise.look(s, {owner!r}).state)")

    def call(self, code: str) -> str:
        script = (
            f"import os; from rewind.core.settings import from_environment; s = from_environment(os.environ); {code}"
        )
        places = {"PYTHONPATH": str(self._folder / "include"), "REWIND_JOBS": str(self._folder / "jobs")}
        environment = {**os.environ, **self._shop.settings.environment(), **places}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def _head() -> str:
    config = Config()
    config.set_main_option("script_location", str(PROJECT / "include" / "rewind" / "registry" / "migrations"))
    head = ScriptDirectory.from_config(config).get_current_head()
    assert head is not None
    return head
