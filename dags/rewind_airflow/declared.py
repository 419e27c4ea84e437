"""What a DAG file may know while it is parsed: the declared pipelines, and nothing of the world."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewind.core.pipeline import Pipeline
from rewind.core.settings import pipelines_folder
from rewind.declared import pipelines
from rewind.declared.pipelines import Broken
from rewind_airflow import run

CHECKOUT = Path(__file__).resolve().parents[2]


def folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the declared pipelines."""
    return pipelines_folder(environment, CHECKOUT)


def good() -> list[Pipeline]:
    """Return the pipelines whose DAGs can be made."""
    return pipelines.load_all(folder())[0]


def broken() -> list[Broken]:
    """Return the pipeline folders that cannot be used, and why."""
    return pipelines.load_all(folder())[1]


def source_topics() -> list[str]:
    """Return the topics that need a mirror, each once."""
    return sorted({pipeline.source_topic for pipeline in good()})


def names(**context: Any) -> list[str]:
    """Return the names of the pipelines whose DAGs can be made."""
    run.nothing_asked(**context)
    return [pipeline.name for pipeline in good()]
