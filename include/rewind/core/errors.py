"""Errors, named by the reaction they ask for.

Every error that leaves Rewind on purpose descends from `RewindError`. A caller does not look at the
text: the class says whether to retry, to stop, or to set a stream aside.
"""

from __future__ import annotations


class RewindError(Exception):
    """Root of all errors raised on purpose. Its `exit_code` is what a main in `jobs/` returns."""

    exit_code = 1


class RetryError(RewindError):
    """The world may answer otherwise in a moment (broker away, registry locked): try again."""

    exit_code = 75


class RefusedError(RewindError):
    """The request cannot be carried out as asked, and nothing has been changed.

    Attributes:
        field: Name of the parameter or setting at fault, as the user wrote it.
        problem: What is wrong with it.
        cure: What the user can do about it.
    """

    exit_code = 64

    def __init__(self, field: str, problem: str, cure: str) -> None:
        super().__init__(f"{field}: {problem}. {cure}")
        self.field = field
        self.problem = problem
        self.cure = cure


class WorldMovedError(RefusedError):
    """What a plan or a verdict rests on is no longer so: plan or validate again."""

    exit_code = 65


class DeniedError(RefusedError):
    """The broker denies it: a right is missing, which its operator can grant."""


class IntegrityError(RewindError):
    """Data contradicts what is recorded of it; going on would lose or double something."""

    exit_code = 70


class QuarantineError(RewindError):
    """A stream fails again and again, or somebody changed its table; a person has to look before it goes on."""

    exit_code = 71


class LeaseHeldError(RewindError):
    """Another driver of the generation lives, or may live: nothing was started."""

    exit_code = 73


class LeaseLostError(RewindError):
    """A newer token was handed out: this driver must not write again."""

    exit_code = 74
