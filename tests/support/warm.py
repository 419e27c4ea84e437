"""Submits into the tests' own warm JVM: a driver does all that a real one does, but for starting a JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rewind.control.submit import Submit, command


class WarmJvm:
    """The JVM of a session, and the command lines of submits whose drivers share it."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        """Write down, for this user alone, where the JVM listens."""
        door = session.sparkContext._gateway
        assert door is not None
        parameters = door.gateway_parameters
        self._session = session
        self._gateway = folder / "gateway.json"
        self._gateway.touch(0o600)
        self._gateway.write_text(json.dumps({"port": parameters.port, "secret": parameters.auth_token}))

    def command(self, made: Submit) -> list[str]:
        """Return the command line of a submit."""
        return [sys.executable, str(Path(__file__).with_name("warm_submit.py")), str(self._gateway), *command(made)[1:]]

    def stop_queries(self) -> None:
        """Stop the queries whose driver died without stopping them; a real JVM would have died with it."""
        running = self._session._jsparkSession.sharedState().activeStreamingQueries()
        for query in list(running.values()):
            query.stop()
