"""A PostgreSQL server of a test's own, from the programs that Debian's package `postgresql` installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from rewind.local import ports

USER = "postgres"


@contextmanager
def server() -> Iterator[str]:
    """Run a server; yield the SQLAlchemy URL of an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    if os.geteuid() == 0:
        # The server refuses to run as root.
        shutil.chown(folder, USER, USER)
    data = folder / "data"
    port = ports.choose("postgres", None, folder.with_suffix(".ports"))
    # In order of a language, as servers in production are: what counts on the order of bytes must ask for it.
    order = ("--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US")
    _run("initdb", "-D", str(data), "-U", USER, "--auth=trust", "--no-sync", *order)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=100"
    # It is thrown away: nothing has to outlive a power cut.
    options += " -c fsync=off -c full_page_writes=off"
    _run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres"
    finally:
        _run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)


def another(url: str, name: str, template: str = "template1") -> str:
    """Make another database on the server of a URL, a copy of a database that nobody uses, and return its own."""
    make = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
    _on_server(url, make)
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def drop(url: str) -> None:
    """Delete the database of a URL, whoever uses it."""
    _on_server(url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(make_url(url).database or "")))


def _on_server(url: str, statement: sql.Composed) -> None:
    address = make_url(url)
    options: dict[str, Any] = {"host": address.host, "port": address.port, "user": USER, "dbname": USER}
    with psycopg.connect(**options, autocommit=True) as connection:
        connection.execute(statement)


def _run(program: str, *arguments: str) -> None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    path = str(found[-1]) if found else shutil.which(program)
    assert path, f"{program} was not found: install PostgreSQL (Debian: apt-get install postgresql)"
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"] if os.geteuid() == 0 else []
    # Into a file: the server inherits what its starter has open, and a pipe would not end before it does.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run([*as_user, path, *arguments], cwd="/", stdout=output, stderr=output, check=False)
        output.seek(0)
        assert done.returncode == 0, f"{program}: {output.read()}"
