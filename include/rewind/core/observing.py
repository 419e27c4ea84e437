"""When the outputs of both jobs are compared while a switch is observed."""

from __future__ import annotations

from datetime import timedelta

TELL, ROLL_BACK = "tell", "roll_back"
"""What is done when differences appear."""
FIRST = timedelta(minutes=1)


def next_look(last: timedelta, every: timedelta, period: timedelta) -> timedelta:
    """Return how long after the switch the next comparison is due.

    Args:
        last: How long after the switch the last one was; 0 before the first.
        every: The pause between two; 0 for pauses that grow: whenever the time since the switch has doubled.
        period: How long the switch is observed; the last comparison is at its end.
    """
    return min(last + (every or max(FIRST, last)), period)
