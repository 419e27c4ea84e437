"""What a rewind compares before its switch: the rows of both outputs, or by an operator's choice nothing."""

from __future__ import annotations

from rewind.core.errors import RefusedError
from rewind.core.observing import ROLL_BACK

ROWS, NONE = "rows", "none"
NOTHING = "nothing was compared"
"""How every place says it that shows such a verdict."""
FIELD = "not_compared"
"""Field of an announcement and of its asset event: why the new job was compared with nothing; absent where it was."""


def check(compare: str, reason: str, on_difference: str) -> None:
    """Check that a request may leave the comparison out.

    Raises:
        RefusedError: It gives no reason, or wants differences to be acted on, of which none would be found.
    """
    if compare != NONE:
        return
    if not reason.strip():
        raise RefusedError("reason", "is empty, and compare is none", "Say why nothing can be compared with live")
    if on_difference == ROLL_BACK:
        raise RefusedError(
            "on_difference", "is roll_back, and compare is none", "Leave it: no difference is looked for"
        )


def told(reason: str) -> str:
    """Return the reason of a verdict over nothing that an operator asked for."""
    return f"{NOTHING}, as the rewind asks (compare: none): {reason.strip()}"
