"""A night that is killed at each side effect, before and after it, and replayed again: the same night."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from rewind.runtime import evidence
from rewind.steps.feed import chunk, feeding
from rewind.steps.generation import query
from rewind.steps.replays import night_line, night_report, nightly, replay
from tests.scenarios import nightly_line
from tests.scenarios.nightly_life import nothing_left, submitted
from tests.scenarios.nightly_line import RECORDS
from tests.support.workshop import Workshop

BOTH = (nightly, night_report, replay, evidence)
ROWS, STATE = (*BOTH, chunk), (*BOTH, night_line, feeding, query)
"""What a night of a job without state, and of one with an unbounded horizon, runs through."""
NOT_PASSED = {
    chunk: {"replay.cut"},
    query: {"chunk.finish"},
}
"""What they do not pass: waves of a feed; a chunk without records, of which there is none here."""
KILLED = (-9, 137)


def moments(modules: tuple[ModuleType, ...]) -> Iterator[str]:
    """Return each side effect of a night, before and after."""
    left_out = set().union(*(names for module, names in NOT_PASSED.items() if module in modules))
    for module in modules:
        text = Path(module.__file__ or "").read_text()
        for name in re.findall(r'side_effect\("([^"]+)"\)', text):
            if name not in left_out:
                yield from (f"before:{name}", f"after:{name}")


def without_state(workshop: Callable[..., Workshop], saved: Path) -> int:
    """Kill a night of a job without state at each moment, replay it again, and return how many moments there were."""
    shop = workshop("killed", 2)
    live = nightly_line.lived(shop, 2)

    def same(moment: str, _kept: str | None) -> None:
        assert nightly_line.told(shop, live, 1) == ("consistent", RECORDS + 10, ""), moment
        nothing_left(shop)

    return _everywhere(shop, live, saved, ROWS, same)


def with_state(workshop: Callable[..., Workshop], saved: Path) -> int:
    """The same of a night that goes on from the one before it."""
    shop, live = nightly_line.endless(workshop, 2, "mortal")
    assert nightly_line.told(shop, live, 0) == ("consistent", RECORDS - 1, "")

    def same(moment: str, kept: str | None) -> None:
        assert nightly_line.told(shop, live, 1) == ("consistent", RECORDS, ""), moment
        assert nightly_line.left(shop) == ["mortal-n2"], moment
        # Once it has left its own checkpoint, it is the same night once more, and starts again.
        wanted = [2 * RECORDS + 10] if kept == "mortal-n2" else [RECORDS, RECORDS + 10]
        assert nightly_line.read(shop, "mortal-n2") == wanted, moment

    return _everywhere(shop, live, saved, STATE, same)


def _everywhere(
    shop: Workshop,
    live: str,
    saved: Path,
    modules: tuple[ModuleType, ...],
    same: Callable[[str, str | None], None],
) -> int:
    for owner in (live, shop.mirror):
        shop.stop(owner)
    home, killed_at = shop.settings.home, list(moments(modules))
    shutil.copytree(home, saved)
    for moment in killed_at:
        shutil.rmtree(home)
        shutil.copytree(saved, home)
        died = submitted(shop, live, 1, environment={"REWIND_CRASH_AT": moment})
        assert died.code in KILLED, (moment, died.code, died.output[-4000:])
        same(moment, nightly_line.kept(shop))
    return len(killed_at)
