"""Acceptance tests print their figures, and a test that passed for a commit is not run for it again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def figure(request: pytest.FixtureRequest, project: Path) -> Iterator[Callable[[str, object], None]]:
    """Print `FIGURE name value`; one that passed for this commit before repeats its figures alone."""
    done = _record(request, project)
    if done.exists():
        for name, value in json.loads(done.read_text()).items():
            print(f"\nFIGURE {name} {value}")
        # Passed, not skipped: what it showed stands, and its figures are above.
        request.node.add_marker(pytest.mark.resumed)
    figures: dict[str, object] = {}

    def tell(name: str, value: object) -> None:
        figures[name] = value
        print(f"\nFIGURE {name} {value}")

    yield tell
    report = getattr(request.node, "call_report", None)
    if report is not None and report.passed and not done.exists():
        done.parent.mkdir(parents=True, exist_ok=True)
        done.write_text(json.dumps(figures, default=str))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.when == "call":
        item.call_report = report
    return report


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Leave out the body of a test whose figures for this commit were printed from its record."""
    return True if pyfuncitem.get_closest_marker("resumed") else None


def _record(request: pytest.FixtureRequest, project: Path) -> Path:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, text=True, check=True
    ).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True, check=True)
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    # Uncommitted changes have no name to resume under.
    folder = f"{head[:12]}-{os.getpid()}" if changed.stdout.strip() else head[:12]
    return project / ".rewind" / "accept" / folder / f"{name}.json"
