"""States of a generation and of a rewind, and the moves between them that are allowed."""

from __future__ import annotations

from rewind.core.errors import RefusedError

CANDIDATE, LIVE, STANDBY, RETIRED, COLLECTED, ABORTED = (
    "candidate",
    "live",
    "standby",
    "retired",
    "collected",
    "aborted",
)
STAGING, MERGED = "staging", "merged"
"""A repair's output before and after its rows went to live's."""

OVER = frozenset({RETIRED, ABORTED, MERGED, COLLECTED})
"""States of a generation that owns nothing any more, or soon."""

MOVES = {
    (CANDIDATE, LIVE),
    (CANDIDATE, ABORTED),
    (LIVE, STANDBY),
    (STANDBY, LIVE),
    (STANDBY, RETIRED),
    (ABORTED, COLLECTED),
    (RETIRED, COLLECTED),
    (STAGING, MERGED),
    (STAGING, ABORTED),
    (MERGED, COLLECTED),
}

ACTIVE, FINISHED, FAILED, ROLLED_BACK = "active", "finished", "failed", "rolled_back"
"""States of a rewind; an aborted one is `ABORTED`, one whose switch was taken back while it was watched
`ROLLED_BACK`."""

PASS, FAIL, ERROR, UNCOMPARED = "pass", "fail", "error", "none"
"""Verdicts. What could not be answered is an error, never a pass; `none` is that an operator chose not to compare."""


def check_move(job_id: str, old: str, new: str) -> None:
    """Check that a generation may go from one state to another.

    Raises:
        RefusedError: It may not.
    """
    if (old, new) not in MOVES:
        raise RefusedError("job_id", f"{job_id} is {old} and cannot become {new}", "Look at `python -m rewind status`")
