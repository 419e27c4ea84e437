"""Drawn sets of pipelines whose names nearly meet; `tests.scenarios.owners` plays more of them."""

from __future__ import annotations

import os

from tests.scenarios import owners

SEED = int(os.environ.get("SEED") or 20)


def test_whatever_goes_away_nobody_touches_what_is_anothers():
    reached = owners.played(SEED, 4)
    # The sets must reach what they are about.
    for what in ("deploy", "plan", "spin_up", "collect", "deploy: RefusedError"):
        assert reached[what], reached
