"""A DAG bundle that has its files parsed when what they are made from changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.local import LocalDagBundle

from rewind.core.settings import pipelines_folder

Marks = Mapping[Path, tuple[int, int]]
"""When each file changed last, in nanoseconds, and its size in bytes."""
NO_MATTER = (0, 0)
"""Mark of a file that only has to be there."""


class PipelinesDagBundle(LocalDagBundle):  # type: ignore[misc]  # mypy does not follow Airflow
    """The folder of the DAG files, parsed again when a pipeline's folder or a module beside them changes.

    Airflow parses a file that has changed at once, and the others after an interval: it cannot know that the new folder
    of a pipeline makes new DAGs of files that stayed as they were. To find out by parsing often takes a core's quarter.
    """

    def __init__(self, **kwargs: Any) -> None:
        """Look at nothing yet: tasks make bundles too, and never refresh them."""
        super().__init__(**kwargs)
        self._seen: Marks | None = None

    def refresh(self) -> None:
        """Ask for a parse of all files if what they read has changed since the last call.

        Airflow's DAG processor calls it every `refresh_interval` seconds; when it starts it parses all files by itself.
        """
        found = marks(pipelines_folder(os.environ, self.path.parent), self.path)
        if self._seen is not None and found != self._seen:
            request(self.name, self.path)
        # Looked at before the parse: what changes meanwhile is seen the next time.
        self._seen = found


def marks(pipelines: Path, dags: Path) -> Marks:
    """Return the marks of what DAG files are made from: declared pipelines, and the modules beside them.

    Args:
        pipelines: Folder of the declared pipelines.
        dags: Folder of the DAG files; those directly in it are left to Airflow, which watches them.
    """
    read = [*pipelines.glob("*/pipeline.yaml"), *pipelines.glob("*/expectations.json"), *dags.glob("*/**/*.py")]
    # New code of a pipeline changes none of its DAGs.
    return {path: _mark(path) for path in read} | dict.fromkeys(pipelines.glob("*/logic.py"), NO_MATTER)


def request(bundle: str, folder: Path) -> None:
    """Ask the DAG processor to parse all files of a bundle next, as Airflow's REST API does for a single one.

    Args:
        bundle: Name of the bundle.
        folder: Its folder.
    """
    # Within functions: each task of a run loads this module, and asks for nothing.
    from airflow.models.dagbag import DagPriorityParsingRequest as Asked
    from airflow.utils.file import list_py_file_paths
    from airflow.utils.session import create_session
    from sqlalchemy import select

    wanted = {os.path.relpath(path, folder) for path in list_py_file_paths(folder)}
    with create_session() as session:
        pending = set(session.scalars(select(Asked.relative_fileloc).where(Asked.bundle_name == bundle)))
        session.add_all(Asked(bundle_name=bundle, relative_fileloc=name) for name in sorted(wanted - pending))


def _mark(path: Path) -> tuple[int, int]:
    try:
        seen = path.stat()
    except FileNotFoundError:
        # It went while it was looked for, and is missed the next time.
        return NO_MATTER
    return seen.st_mtime_ns, seen.st_size
