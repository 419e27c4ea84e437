"""What the issue `speed` asks to be shown, as far as `make bench` measures it; `make accept WHAT=speed`.

What is not reached is expected to fail, so that reaching it shows. Lines without a test have no benchmark yet.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from benchmarks import backfill, long_log, registry
from benchmarks.rounds import Ratio

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]


def measured(figure: Figure, what: ModuleType) -> dict[str, Ratio]:
    """Run a benchmark at its full length, and show its figures."""
    found: dict[str, Ratio] = {ratio.name: ratio for ratio in what.measure(quick=False)}
    for ratio in found.values():
        figure(ratio.name, f"{ratio.value:.2f} ({ratio.least:.2f} to {ratio.most:.2f})")
    return found


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a cold JVM takes longer than the script's time and ten seconds"
)
def test_shows_3_the_whole_step_beside_the_script(figure: Figure) -> None:
    spent = measured(figure, backfill)["backfill_step_to_script"].spent
    assert spent["backfill"].wall <= spent["script"].wall + 10


def test_shows_11_fifty_writers_of_one_registry(figure: Figure) -> None:
    wait = measured(figure, registry)["registry_longest_wait_to_plain"]
    assert wait.spent["registry"].wall <= 1


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="Delta itself lists the whole log of a local table with each commit"
)
def test_shows_12_a_commit_to_a_long_log(figure: Figure) -> None:
    ratio = measured(figure, long_log)[f"commit_at_{long_log.LONG}_to_{long_log.SHORT}"]
    assert ratio.value <= 1.2
