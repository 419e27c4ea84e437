"""Where people find more: the Rewind page of a run."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

from rewind.control import requests

REWINDS = "rewind_"
"""Only runs of these DAGs are rewinds of their own."""


def page(ti: Any) -> str:
    """Return the address of the Rewind page about a task's run: its rewind, or all pipelines."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    if not ti.dag_id.startswith(REWINDS):
        return f"{base}/rewind/"
    return f"{base}/rewind/#rewind/{quote(requests.rewind_id(ti.dag_id, ti.run_id), safe='')}"


class PageLink(BaseOperatorLink):
    """A link of a task to the Rewind page about its run, with evidence, logs and what may be done."""

    name = "Rewind page"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - the base class's
        """Return its address."""
        return page(ti_key)
