"""One submit and its lease: together from before the driver starts until its end is seen."""

from __future__ import annotations

import logging

from rewind.core.errors import LeaseLostError, RetryError
from rewind.core.settings import Settings
from rewind.runtime.drivers import step_lease
from rewind.runtime.drivers.step_lease import Claim
from rewind_airflow.hook import TrackedHook
from rewind_airflow.reactions import reactions

log = logging.getLogger(__name__)


class SubmitLease:
    """The lease under which a hook submits."""

    def __init__(self, settings: Settings, claim: Claim, hook: TrackedHook) -> None:
        """Take the lease.

        Raises:
            RefusedError: An orphan of the last submit lives in the cluster.
            LeaseHeldError: What drives the last submit lives, or may live.
        """
        self._settings = settings
        self._hook = hook
        self._hold = step_lease.take(settings, claim, hook.state_of)
        hook.named = self._name
        log.info("%s: token %d, %s %s", claim.owner, self._hold.token, self._hold.how, self._hold.holder.driver)

    @property
    def followed(self) -> str:
        """The driver of an earlier submit that is to be followed further; empty when a new one is to start."""
        return self._hold.holder.driver if self._hold.how == step_lease.REATTACHED else ""

    def settle(self) -> None:
        """Give the lease back if the end of the driver was seen."""
        if self._hook.ended:
            step_lease.release(self._settings, self._hold)

    def kill(self) -> None:
        """End the driver; until its end is seen the lease stays, and so does all that it blocks."""
        try:
            self._hold = step_lease.orphan(self._settings, self._hold)
        except LeaseLostError as lost:
            log.warning("%s: what still runs is no more this attempt's to end", lost)
            return
        except RetryError as away:
            # Whose the processes with the mark are now is not known: only this attempt's own are ended.
            log.warning("%s: the lease stays as it is", away)
            self._hook.on_kill()
            return
        self._hook.on_kill()
        step_lease.kill(self._hold)
        self.settle()

    def _name(self, driver: str) -> None:
        with reactions():
            self._hold = step_lease.name_driver(self._settings, self._hold, driver)
