"""Where people find more: the Rewind page of a run, the evidence of a check, and Spark's own history."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

from rewind.declared import forms

HISTORY = "REWIND_SPARK_HISTORY"
"""Address of a Spark history server."""
REWINDS = "rewind_"
"""Only runs of these DAGs are rewinds of their own."""


def page(ti: Any) -> str:
    """Return the address of the Rewind page about a task's run: its rewind, or all pipelines."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    if not ti.dag_id.startswith(REWINDS):
        return f"{base}/rewind/"
    return f"{base}/rewind/#rewind/{quote(forms.rewind_id(ti.dag_id, ti.run_id), safe='')}"


def evidence(folder: str, name: str) -> str:
    """Return the address of a report in an evidence folder; empty without a name."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}/rewind/api/rewinds/{quote(folder, safe='')}/evidence/{quote(name, safe='')}" if name else ""


class EvidenceLink(BaseOperatorLink):
    """A link of a task that checks to what it wrote down; empty until it has."""

    name = "Evidence"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - the base class's
        """Return its address."""
        return evidence(*operator.report)


class HistoryLink(BaseOperatorLink):
    """A link of a submit to its application on a Spark history server, where `REWIND_SPARK_HISTORY` names one."""

    name = "Spark history"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - the base class's
        """Return its address; empty without a server, or before the application has told its id."""
        server = os.environ.get(HISTORY, "").rstrip("/")
        return f"{server}/history/{operator.application_id}/" if server and operator.application_id else ""


class PageLink(BaseOperatorLink):
    """A link of a task to the Rewind page about its run, with evidence, logs and what may be done."""

    name = "Rewind page"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - the base class's
        """Return its address."""
        return page(ti_key)
