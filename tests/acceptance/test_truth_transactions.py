"""What the issue `truth` asks to be shown of transactions, at full length; `make accept WHAT=truth`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios import crowd
from tests.support.fakes import installation
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]


def test_no_pipeline_waits_for_one_that_lists_many_files_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    waits = crowd.backfill_beside_writers(installation(tmp_path / "home"), monkeypatch, 50, 20_000, at_a_time=1_000)
    assert (waits.writes, waits.files) == (1_000, 20_000)
    assert waits.longest <= 1
    figure("seconds_that_a_writer_waited_at_most_beside_20000_slow_files", round(waits.longest, 2))


def test_no_pipeline_waits_while_a_life_goes_on_over_many_slow_files(
    workshop: Callable[..., Workshop], monkeypatch: pytest.MonkeyPatch, figure: Callable[[str, object], None]
) -> None:
    waits, slowed = crowd.life_beside_writers(workshop("crowd", 2), monkeypatch, 50, 20_000, microseconds=200)
    assert waits.files == 20_000
    assert max(slowed) > 20_000, "no driver looked at the files"
    assert waits.longest <= 1
    figure("seconds_that_a_writer_waited_at_most_beside_plan_backfill_and_cut_over", round(waits.longest, 2))
    figure("writes_beside_plan_backfill_and_cut_over", waits.writes)
