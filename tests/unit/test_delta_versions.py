"""Versions of a Delta log are asked for by name, for a log of months has hundreds of thousands of names."""

from __future__ import annotations

import pytest

from rewind.adapters import delta_log, files


class Log:
    """A log whose oldest versions may have left it."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.listed = self.asked = 0

    def names(self, _spark, path):
        self.listed += 1
        assert path == "table/_delta_log"
        return [f"{version:020d}.json" for version in sorted(self.held)] + ["_last_checkpoint"]

    def exists(self, _spark, path):
        self.asked += 1
        return int(path.rpartition("/")[2].removesuffix(".json")) in self.held


@pytest.fixture
def log(monkeypatch):
    made = Log()
    monkeypatch.setattr(files, "names", made.names)
    monkeypatch.setattr(files, "exists", made.exists)
    monkeypatch.setattr(delta_log, "_reached", {})
    return made


def test_what_came_since_a_version_is_found_without_a_list(log):
    log.held = set(range(100_000))
    assert delta_log.versions(None, "table", 99_997) == [99_998, 99_999]
    assert (log.listed, log.asked) == (0, 4)


def test_a_log_that_has_dropped_the_version_is_listed(log):
    log.held = {12, 13, 14}
    assert delta_log.versions(None, "table", 9) == [12, 13, 14]
    assert delta_log.versions(None, "table", -1) == [12, 13, 14]
    assert log.listed == 2


def test_the_newest_version_is_found_by_one_list_a_process(log):
    assert delta_log.newest(None, "table") == -1
    log.held = {0, 1, 2}
    assert delta_log.newest(None, "table") == 2
    listed = log.listed
    log.held |= {3, 4}
    assert [delta_log.newest(None, "table") for _ in range(3)] == [4, 4, 4]
    assert log.listed == listed


def test_a_table_that_was_made_anew_is_told_from_the_one_before(log):
    log.held = {0, 1, 2}
    assert delta_log.newest(None, "table") == 2
    log.held = {0}
    assert delta_log.newest(None, "table") == 0
    log.held = set()
    assert delta_log.newest(None, "table") == -1
