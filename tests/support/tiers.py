"""Which tests run, in which order, and what they cost: the plugin of `make test` and `make test-all`."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

DURATIONS = Path(__file__).resolve().parents[1] / "durations.json"
WORTH_RECORDING = 0.5
"""Seconds from which on a test's duration is worth a line of the committed file."""
STAGE = "tests/stage/"
ACCEPTANCE = "tests/acceptance/"
SPARK_SUBMIT = Path(sys.executable).parent / "spark-submit"
WARM_SUBMIT = Path(__file__).with_name("warm_submit.py")

started: Counter[str] = Counter()
"""Drivers that this process, or a stage of its, has started: `spark-submits` of their own JVM, `warm` in the tests'."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help=f"write {DURATIONS.name} from what this run takes")


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_count)
    config.pluginmanager.register(_Costs(config), "costs")


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        words = arguments[1] if isinstance(arguments[1], list) else []
        started["spark-submits"] += str(SPARK_SUBMIT) in words[:1]
        started["warm"] += str(WARM_SUBMIT) in words[1:2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, whole: whichever worker is free takes the next one, so that both end together.

    Before all others come those on a real scheduler, which wait more than they work.

    Raises:
        pytest.UsageError: `make accept` alone runs a test, and it is no line of any issue: nothing would run it.
    """
    lost = [item.nodeid for item in items if _is_left_to_acceptance(item) and not item.get_closest_marker("shows")]
    if lost:
        raise pytest.UsageError(f"a test of a tier with the mark `acceptance` needs a mark `shows`: {', '.join(lost)}")
    known, files = recorded(), defaultdict(float)
    for item in items:
        files[_file(item.nodeid)] += known.get(item.nodeid, 0.0)
    items.sort(key=lambda item: (not item.nodeid.startswith(STAGE), -files[_file(item.nodeid)], _file(item.nodeid)))


def one_soon(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the parameters of a dear test, of which `make test` runs the first alone."""
    return tiered(cases, (), pytest.mark.full)


def one_in_all(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return the parameters of a dearer one: `make test-all` runs the first, `make accept` all of them."""
    return tiered(cases, pytest.mark.full, pytest.mark.acceptance)


def tiered(cases: Iterable[tuple[Any, ...]], first: Any, others: Any) -> list[Any]:
    """Return the parameters of a test, with marks of the first and of the others."""
    begun, *following = cases
    return [pytest.param(*begun, marks=first), *(pytest.param(*case, marks=others) for case in following)]


def recorded() -> dict[str, float]:
    """Return the seconds of each test that takes some, as they were last recorded."""
    known: dict[str, float] = json.loads(DURATIONS.read_text())
    return known


class _Costs:
    """Adds up what a run starts and how long each test takes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._started: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._started.update(getattr(node, "workeroutput", {}).get("started", {}))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["started"] = dict(started)
        elif session.config.option.record_durations:
            self._record()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = self._started + started
        submits, warm = total["spark-submits"], total["warm"]
        terminalreporter.write_line(
            f"{len(self._seconds)} items; {submits} spark-submits, {warm} drivers in a warm JVM"
        )

    def _record(self) -> None:
        whole = recorded() | {nodeid: round(seconds, 1) for nodeid, seconds in self._seconds.items()}
        kept = {nodeid: seconds for nodeid, seconds in sorted(whole.items()) if seconds >= WORTH_RECORDING}
        DURATIONS.write_text(json.dumps(kept, indent=0) + "\n")


def _is_left_to_acceptance(item: pytest.Item) -> bool:
    return item.get_closest_marker("acceptance") is not None and not item.nodeid.startswith(ACCEPTANCE)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
