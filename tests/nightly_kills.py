"""A night that is killed at each side effect, before and after it, and replayed again: the same night."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rewind.control import evidence
from rewind.steps import feeding, night_line, night_report, nightly, query, replay
from tests import nightly_line
from tests.nightly_life import submitted
from tests.nightly_line import RECORDS
from tests.workshop import Workshop

MODULES = (nightly, night_line, night_report, replay, feeding, query, evidence)
"""What a night of a job with state runs through."""
NOT_PASSED = {"chunk.finish"}
"""That of a chunk without records, which no wave of a night has here."""
KILLED = (-9, 137)


def moments() -> Iterator[str]:
    """Return each side effect of a night, before and after."""
    for module in MODULES:
        text = Path(module.__file__ or "").read_text()
        for name in re.findall(r'side_effect\("([^"]+)"\)', text):
            if name not in NOT_PASSED:
                yield from (f"before:{name}", f"after:{name}")


def everywhere(workshop: Callable[..., Workshop], saved: Path) -> int:
    """Kill the second night of a job at each moment, replay it again, and return how many moments there were."""
    shop, live = nightly_line.endless(workshop, 2)
    assert nightly_line.told(shop, live, 0) == ("consistent", RECORDS - 1, "")
    for owner in (live, shop.mirror):
        shop.stop(owner)
    home = shop.settings.home
    shutil.copytree(home, saved)
    killed_at = list(moments())
    for moment in killed_at:
        shutil.rmtree(home)
        shutil.copytree(saved, home)
        died = submitted(shop, live, 1, environment={"REWIND_CRASH_AT": moment})
        assert died.code in KILLED, (moment, died.code, died.output[-4000:])
        kept = nightly_line.kept(shop)
        assert nightly_line.told(shop, live, 1) == ("consistent", RECORDS, ""), moment
        assert nightly_line.left(shop) == ["line-n2"], moment
        # Once it has left its own checkpoint, it is the same night once more, and begins anew.
        anew = kept == "line-n2"
        wanted = [2 * RECORDS + 10] if anew else [RECORDS, RECORDS + 10]
        assert nightly_line.read(shop, "line-n2") == wanted, moment
    return len(killed_at)
