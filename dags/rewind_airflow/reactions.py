"""How Airflow reacts to our errors: each class says whether a retry can help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from rewind.core import errors
from rewind.core.errors import LeaseHeldError, RetryError, RewindError

USAGE = 2
"""Exit code of a main whose arguments argparse refused."""

FINAL_CODES = frozenset({USAGE}).union(
    kind.exit_code
    for kind in (
        errors.RefusedError,
        errors.WorldMovedError,
        errors.IntegrityError,
        errors.QuarantineError,
        errors.LeaseLostError,
    )
)
"""Exit codes of a main after which the same submit would end the same way."""


@contextmanager
def reactions() -> Iterator[None]:
    """Raise errors of ours as Airflow's, with the same text: to be retried, or to fail at once."""
    try:
        yield
    except (RetryError, LeaseHeldError) as error:
        raise AirflowException(str(error)) from error
    except RewindError as error:
        raise AirflowFailException(str(error)) from error


@contextmanager
def final_reactions() -> Iterator[None]:
    """Fail at once on what no wait can heal; what may heal passes, so that a sensor looks again."""
    try:
        yield
    except RetryError:
        raise
    except RewindError as error:
        raise AirflowFailException(str(error)) from error
