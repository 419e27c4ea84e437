"""A spark-submit whose driver uses the JVM of the tests: the main runs as it would, in a process of its own.

Started as `warm_submit.py GATEWAY OPTION... MAIN ARGUMENT...`, GATEWAY being the file that `tests.support.warm` wrote.
As with a real one, the process that is started has the Python driver as its child, ends with it and with its code,
and the driver imports from the bundle's zip alone. What differs: the JVM is warm, shared, and survives them both.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""Makes no Java of each new query and compiles none, which pays from some thousand rows on."""
SMALL = {
    **INTERPRETED,
    "spark.databricks.delta.snapshotPartitions": "1",
    # Else a session whose zone is not UTC reads a table's whole log once more with each commit.
    "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "false",
    # Else the plan of each query is written out in full for a page that nobody opens.
    "spark.sql.ui.explainMode": "simple",
    # Else each function of a column asks the JVM to keep the line that it was called from. A real driver does: an error
    # names the line of a pipeline's code by that, in whichever step runs it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""What the tests' JVM does otherwise than a real one, their tables being small; ADR 0031 has what it saves."""


def main(gateway: str, given: list[str]) -> int:
    """Run the driver in a child and return its exit code, as a shell tells it."""
    child = os.fork()
    if not child:
        drive(json.loads(Path(gateway).read_text()), given)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def drive(gateway: dict[str, Any], given: list[str]) -> None:
    """Run the main with a session of its own in the shared JVM; never returns."""
    code, server = 1, None
    try:
        options, application, arguments = parsed(given)
        sys.argv = [application, *arguments]
        sys.path[0] = str(Path(application).parent)
        sys.path.insert(1, options["--py-files"])
        watch_transactions()
        server = own_server(gateway)
        spark = attached(options["--name"], options["--conf"])
        code = ran(application)
        leave(spark)
    finally:
        if server is not None:
            server.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads of Kafka clients and of Py4J must not keep it alive, nor may its end touch the JVM.
        os._exit(code)


def watch_transactions() -> None:
    """Stop slow calls within registry transactions here as in the tests' own process (ADR 0033)."""
    checkout = str(Path(__file__).resolve().parents[2])
    sys.path.append(checkout)
    from tests.support import held_transactions

    # The driver's own modules come from its bundle alone.
    sys.path.pop()
    held_transactions.arm()


def parsed(given: list[str]) -> tuple[dict[str, Any], str, list[str]]:
    """Return the options, the main and its arguments."""
    options: dict[str, Any] = {"--conf": {}}
    rest = iter(given)
    for word in rest:
        if not word.startswith("--"):
            return options, word, list(rest)
        value = next(rest)
        if word == "--conf":
            key, _, text = value.partition("=")
            options["--conf"][key] = text
        else:
            options[word] = value
    raise SystemExit("no main was given")


def own_server(gateway: dict[str, Any]) -> Any:
    """Open a door of the driver's own in the JVM: the callbacks of a batch must find the driver that asked for them."""
    from py4j.java_gateway import GatewayParameters, JavaGateway

    first = JavaGateway(gateway_parameters=GatewayParameters(port=gateway["port"], auth_token=gateway["secret"]))
    server = first.jvm.py4j.ClientServer.ClientServerBuilder().authToken(gateway["secret"]).javaPort(0).build()
    server.startServer()
    os.environ["PYSPARK_GATEWAY_PORT"] = str(server.getJavaServer().getListeningPort())
    os.environ["PYSPARK_GATEWAY_SECRET"] = gateway["secret"]
    return server


def attached(name: str, conf: dict[str, str]) -> Any:
    """Make the session that the main's builder finds: over the shared context, with settings of its own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    door = launch_gateway()
    shared = door.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    context = door.jvm.JavaSparkContext(shared.sparkContext())
    spark_context = SparkContext(gateway=door, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    # Else each driver's session would become the default one of all.
    SparkSession._should_update_active_session = staticmethod(lambda: False)
    spark = SparkSession(spark_context, shared.newSession())
    SparkSession._instantiatedSession = SparkSession._activeSession = spark
    door.jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    SparkSession.stop = lambda self: None
    for key, value in {**conf, **SMALL}.items():
        if key.startswith(("spark.sql.", "spark.databricks.")) and spark.conf.isModifiable(key):
            spark.conf.set(key, value)
    return spark


def leave(spark: Any) -> None:
    """Stop what the session still runs and take its listeners away: nobody will answer them any more."""
    for query in spark.streams.active:
        query.stop()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    manager = spark._jsparkSession.streams()
    for listener in manager.listListeners():
        manager.removeListener(listener)


def ran(application: str) -> int:
    """Run the main and return the code that it exits with."""
    try:
        runpy.run_path(application, run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
