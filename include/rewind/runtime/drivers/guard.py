"""Hold a lease while a driver works: taken on proof, renewed in the background, checked before each write."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from rewind.core import names
from rewind.core.errors import LeaseHeldError, LeaseLostError, RetryError
from rewind.core.settings import Settings
from rewind.registry import leases
from rewind.registry.database import check_protocol, writing

RENEW_SECONDS = 5.0
REGISTRY_AWAY_SECONDS = 900.0
"""How long a driver goes on without a registry. A lease cannot pass on meanwhile: that needs the registry."""
RENEW_MILLISECONDS = 2_000
"""How long a batch waits for a registry that somebody locks: a stream must not stand still with it."""

log = logging.getLogger(__name__)


class Guard:
    """The lease of one owner, as a context: taken at entry, given back at exit.

    Attributes:
        token: The lease's token, once taken.
    """

    def __init__(
        self, settings: Settings, owner: str, step: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Keep what is needed; nothing is taken yet.

        Args:
            settings: The installation.
            owner: Whose lease it is.
            step: The step that works on a job before, or beside, its stream; empty for a stream.
            clock: Seconds that only grow.
        """
        self._settings = settings
        self._owner = owner
        self._step = step
        self._clock = clock
        self._lock = -1
        self._stop = threading.Event()
        self._lost: LeaseLostError | None = None
        self._renewed = clock()
        self.token = 0

    def __enter__(self) -> Guard:
        """Take the lease.

        Raises:
            LeaseHeldError: Another driver of this owner lives, or may live.
        """
        self._lock = _locked_file(self._settings.home, self._owner)
        try:
            with writing(self._settings.registry_url) as connection:
                check_protocol(connection)
                self.token = leases.take(connection, self._owner, replace(leases.this_driver(), step=self._step))
        except BaseException:
            os.close(self._lock)
            raise
        self._renewed = self._clock()
        threading.Thread(target=self._renew_for_ever, name="lease", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease back."""
        self._stop.set()
        try:
            with writing(self._settings.registry_url) as connection:
                leases.give_back(connection, self._owner, self.token)
        except RetryError as away:
            log.warning("%s: the lease stays, its holder is about to end: %s", self._owner, away)
        os.close(self._lock)

    def check(self) -> None:
        """Check that this driver may write.

        Raises:
            LeaseLostError: A newer token was handed out, or the registry has been away for too long.
        """
        self.check_token()
        try:
            self.renew()
        except RetryError as away:
            silent = self._clock() - self._renewed
            if silent > REGISTRY_AWAY_SECONDS:
                raise LeaseLostError(f"{self._owner}: no registry for {silent:.0f} s") from away
            log.warning("%s goes on without registry for %.0f s: %s", self._owner, silent, away)

    def check_token(self) -> None:
        """Check what the last renewal found, without asking the registry.

        Raises:
            LeaseLostError: A newer token was handed out.
        """
        if self._lost is not None:
            raise self._lost

    def renew(self) -> None:
        """Record that this driver lives.

        Raises:
            LeaseLostError: A newer token was handed out.
            RetryError: The registry is away.
        """
        with writing(self._settings.registry_url, RENEW_MILLISECONDS) as connection:
            leases.renew(connection, self._owner, self.token)
        self._renewed = self._clock()

    def _renew_for_ever(self) -> None:
        while not self._stop.wait(RENEW_SECONDS):
            try:
                self.renew()
            except LeaseLostError as lost:
                self._lost = lost
                return
            except RetryError as away:
                log.warning("%s: lease not renewed: %s", self._owner, away)


def lock_file(home: Path, owner: str) -> Path:
    """Return the file that the driver of an owner locks on its host."""
    folder = home / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return names.inside(folder, f"{owner}.lock", "owner")


def _locked_file(home: Path, owner: str) -> int:
    lock = os.open(lock_file(home, owner), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise LeaseHeldError(f"{owner}: another process of this host holds its lock") from None
    return lock
