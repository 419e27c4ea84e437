"""What the issue `quick` asks to be shown of set-up; `make accept WHAT=quick_setup`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios import quick_setup

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]


def test_shows_1_setup_against_its_bare_parts(figure: Figure, project: Path, tmp_path: Path) -> None:
    figures = quick_setup.compared(project, tmp_path / "clones")
    for name, value in figures.items():
        figure(name, value)
    assert figures["setup_to_bare"] <= 1.2


def test_shows_1_killed_at_five_moments(figure: Figure, project: Path, tmp_path: Path) -> None:
    figures = quick_setup.killed_five_times(project, tmp_path / "clone")
    for name, value in figures.items():
        figure(name, value)
    assert figures["packages_fetched_twice"] == []
