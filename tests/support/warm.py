"""Submits into the tests' own warm JVM: a driver does all that a real one does, but for starting a JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rewind.runtime.drivers import submit
from rewind.runtime.drivers.submit import Submit
from tests.support.tiers import WARM_SUBMIT


class WarmJvm:
    """The JVM of a session, and the command lines of submits whose drivers share it.

    Attributes:
        gateway: File that says where the JVM listens; for `warm_submit.py`.
    """

    def __init__(self, session: SparkSession, folder: Path) -> None:
        """Write down, for this user alone, where the JVM listens."""
        door = session.sparkContext._gateway
        assert door is not None
        parameters = door.gateway_parameters
        self._session = session
        self._real = submit.command
        self.gateway = folder / "gateway.json"
        self.gateway.touch(0o600)
        self.gateway.write_text(json.dumps({"port": parameters.port, "secret": parameters.auth_token}))

    def command(self, made: Submit) -> list[str]:
        """Return the command line of a submit."""
        return [sys.executable, str(WARM_SUBMIT), str(self.gateway), *self._real(made)[1:]]

    def stop_queries(self) -> None:
        """Stop the queries whose driver died without stopping them; a real JVM would have died with it."""
        running = self._session._jsparkSession.sharedState().activeStreamingQueries()
        for query in list(running.values()):
            query.stop()
