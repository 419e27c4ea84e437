"""For pytest: notes each test with its outcome and seconds, and, when asked to, which lines it runs through.

What a fixture of a wider scope than a test runs through counts for every test that uses it, so it is recorded in the
fixture's name and put together by `coverage_map`. Processes that a test starts measure themselves, in its name.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NOTES, CONFIG, CONTEXT = "REWIND_MUTANTS_NOTES", "REWIND_MUTANTS_COVERAGE", "REWIND_MUTANTS_CONTEXT"
ORDER = "REWIND_MUTANTS_ORDER"
"""File with node ids: tests run in its order, whatever other plugins think of it."""

_OWN = tuple(Path(os.path.realpath(place)) for place in (tempfile.gettempdir(), Path.cwd()))
"""Where a planted fault may delete: temporary folders, and the copy that it is planted in."""


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(_refuse_deletions_elsewhere)
    config.pluginmanager.register(_Notes(Path(os.environ[NOTES]), _coverage()))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if ORDER in os.environ:
        wanted = {name: place for place, name in enumerate(Path(os.environ[ORDER]).read_text().splitlines())}
        items.sort(key=lambda item: wanted.get(item.nodeid, len(wanted)))


def _refuse_deletions_elsewhere(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what a planted fault may want to delete of the machine that it runs on.

    A guard of a deletion that is missing is what is planted here: the test that notices it must not cost a home.
    """
    if event == "shutil.rmtree":
        path = Path(os.path.realpath(os.fsdecode(arguments[0])))
        if not any(path.is_relative_to(place) and path != place for place in _OWN):
            raise PermissionError(f"a planted fault wanted to delete {path}")


def _coverage() -> Any:
    if CONFIG not in os.environ:
        return None
    import coverage

    os.environ[CONTEXT] = ""
    measured = coverage.Coverage(config_file=os.environ[CONFIG])
    # For drivers, which end so and fork; what pytest itself forks is not measured twice.
    measured.set_option("run:patch", [])
    measured.start()
    return measured


class _Notes:
    """What is noted of a session.

    Attributes:
        path: Where to, a line of JSON a note.
        measured: The running measurement; None for none.
        paid: Seconds that fixtures of a wider scope took within the test that runs.
    """

    def __init__(self, path: Path, measured: Any) -> None:
        self.path = path
        self.measured = measured
        self.paid = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self._note("started", test=item.nodeid)
        self._switch(item.nodeid)
        self.paid, began = 0.0, time.monotonic()
        result = yield
        seconds = time.monotonic() - began - self.paid
        full = item.get_closest_marker("full") is not None
        self._note("ended", test=item.nodeid, seconds=round(seconds, 3), full=full, fixtures=_wide_fixtures(item))
        self._switch("")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        name, before, paid, began = _name(fixturedef), os.environ.get(CONTEXT, ""), self.paid, time.monotonic()
        self._switch(name)
        try:
            return (yield)
        finally:
            self._switch(before)
            took = time.monotonic() - began
            inner, self.paid = self.paid - paid, paid + took
            self._note("fixture", fixture=name, seconds=round(took - inner, 3))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note("failed", test=report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note("broken", test=report.nodeid, why=str(report.longrepr)[-500:])

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self.measured is not None:
            self.measured.stop()
            self.measured.save()

    def _switch(self, context: str) -> None:
        if self.measured is not None:
            os.environ[CONTEXT] = context
            self.measured.switch_context(context)

    def _note(self, what: str, **of: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"what": what, **of}) + "\n")


def _wide_fixtures(item: pytest.Item) -> list[str]:
    known = getattr(item, "_fixtureinfo", None)
    definitions = known.name2fixturedefs.values() if known else ()
    return sorted({_name(each) for found in definitions for each in found if each.scope != "function"})


def _name(fixturedef: Any) -> str:
    return f"fixture {fixturedef.argname} of {fixturedef.baseid}"
