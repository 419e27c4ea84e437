"""What the issue `quick` asks to be shown of the tests' own time: on two idle cores, set-up aside."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.targets import make

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(7_200)]

Figure = Callable[[str, object], None]
RUNS, TEST_SECONDS, ALL_SECONDS = 3, 600, 1_500
COSTS = re.compile(r"^\d+ items; \d+ spark-submits, \d+ drivers in a warm JVM$", re.MULTILINE)


def ran(project: Path, target: str, log: Path) -> tuple[float, list[str]]:
    """Run a target to its success; return its seconds, and what each of its runs of pytest says that it started."""
    code, seconds = make(project, target, log)
    text = log.read_text()
    assert code == 0, text[-6_000:]
    return seconds, COSTS.findall(text)


def test_shows_2_make_test(figure: Figure, project: Path, tmp_path: Path) -> None:
    took = []
    for number in range(RUNS):
        seconds, costs = ran(project, "test", tmp_path / f"test-{number}.log")
        took.append(round(seconds))
        assert len(costs) == 1
    figure("make_test_seconds", took)
    figure("make_test_started", costs[0])
    assert sorted(took)[RUNS // 2] <= TEST_SECONDS


def test_shows_2_make_test_all(figure: Figure, project: Path, tmp_path: Path) -> None:
    seconds, costs = ran(project, "test-all", tmp_path / "test-all.log")
    figure("make_test_all_seconds", round(seconds))
    figure("make_test_all_started", "; ".join(costs))
    assert len(costs) == 2
    assert seconds <= ALL_SECONDS
