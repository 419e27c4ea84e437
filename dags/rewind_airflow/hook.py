"""The spark-submit hook with what it lacks: a refusal where it guesses, and an end for the whole process tree."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from rewind.core import causes
from rewind.core.errors import RefusedError
from rewind.registry import database
from rewind.runtime.drivers import driver_environment
from rewind.runtime.drivers.step_lease import ENDED

# Airflow kills a task five seconds after it asked it to end: what must be done by then comes first. A task that ran
# out of its own time has longer to see the end of its driver.
TERM_SECONDS = 2.0
CONFIRM_SECONDS = 30.0
ANSWER_SECONDS = 30.0

_APPLICATION = re.compile(r"spark application (\S+)")
"""As `adapters.session` writes it."""
_MASTER = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(spark|k8s)://.+")


class Target(NamedTuple):
    """Where a connection submits to."""

    master: str
    deploy_mode: str


class TrackedHook(SparkSubmitHook):
    """A hook that knows how each driver it submits will be followed to its end."""

    # Airflow's own fields, of which its class says no types.
    _driver_id: str | None
    _driver_status: str | None
    _env_vars: dict[str, Any] | None

    def __init__(self, conn_id: str, **options: Any) -> None:
        """Resolve the connection.

        Raises:
            RefusedError: It is missing, its master is none, or a driver in the cluster could not be followed.
        """
        try:
            self.get_connection(conn_id)
        except AirflowNotFoundException:
            # The hook would say so in one log line and submit to YARN.
            cure = f"Add it in Airflow, or set AIRFLOW_CONN_{conn_id.upper()}"
            raise RefusedError(conn_id, "there is no Spark connection of that id", cure) from None
        try:
            super().__init__(conn_id=conn_id, **options)
        except NameError:
            # The provider names a module that it imported only if it could.
            cure = "Install apache-airflow-providers-cncf-kubernetes"
            raise RefusedError(conn_id, "Kubernetes is out of reach from here", cure) from None
        self._refuse_untracked(conn_id)
        self._keep_environment()
        self._ending = False
        self.named: Callable[[str], None] = lambda _: None
        """Told the id of the driver as soon as a cluster has given it."""
        self.application_id = ""
        """Spark's id of the application, once it has told it."""

    def _noted(self, line: Any) -> Any:
        found = _APPLICATION.search(str(line))
        if found:
            self.application_id = found[1]
        return line

    @property
    def target(self) -> Target:
        """Master and deploy mode, the same for every form in which a connection can be given."""
        return Target(self._connection["master"], self._connection["deploy_mode"] or "client")

    @property
    def exit_code(self) -> int | None:
        """Exit code of the submit; None when none was started."""
        return None if self._submit_sp is None else self._submit_sp.poll()

    @property
    def last_words(self) -> str:
        """Why the submit ended, in one line out of the last ones of its output."""
        return causes.cause("\n".join(self._last_submit_log_lines))

    def end_state(self, error: Exception | None) -> str | None:
        """Return the end state of a driver in the cluster, None when the submit itself was the driver."""
        if self.target.deploy_mode != "cluster":
            return None
        if self._should_track_driver_status:
            return self._driver_status or "UNKNOWN"
        return "FAILED" if error is not None else "FINISHED"

    @property
    def tracked(self) -> bool:
        """Whether a standalone cluster runs the driver, and is asked for its state."""
        return bool(self._should_track_driver_status)

    @property
    def ended(self) -> bool:
        """Whether no driver of this submit can be left in a cluster."""
        return not (self.tracked and self._driver_id) or self._driver_status in ENDED

    def state_of(self, driver: str) -> str | None:
        """Return the state that the cluster gives of a driver; None when it does not answer."""
        if not self.tracked:
            return None
        self._driver_id, self._driver_status = driver, None
        found = self._polled()
        self._driver_id, self._driver_status = None, None
        return found

    def attach(self, driver: str) -> None:
        """Follow a driver that an earlier submit started to its end."""
        self._driver_id = driver
        self.follow()

    def follow(self) -> None:
        """Follow a driver to its end although its submit failed: the driver may be well."""
        if self._should_track_driver_status and self._driver_id and self._driver_status is None:
            try:
                self._start_driver_status_tracking()
            except AirflowException as error:
                self.log.warning("driver %s: %s", self._driver_id, error)

    def on_kill(self) -> None:
        """End the driver in the cluster, or the submit with all its descendants; asked again, nothing more happens.

        The provider's hook ends the JVM alone, and a Python driver that sleeps outlives it.
        """
        if self._ending:
            return
        self._ending = True
        tree = _tree(self._submit_sp.pid) if self._submit_sp is not None else []
        _signal(tree, "terminate")
        _wait_gone(tree)
        super().on_kill()
        _signal(tree, "kill")
        if self._should_track_driver_status and self._driver_id:
            self._confirm_kill()

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Submit with the environment of a driver of ours, not with Airflow's whole one."""
        environment = {**driver_environment.inherited(os.environ), **self._given}
        return super().submit(application, **{**kwargs, "env": environment})

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        # What stands here the provider adds to Airflow's own environment; ours is given to the process already.
        self._env = None
        return command

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._told_of_the_driver(map(self._noted, itr)))

    def _told_of_the_driver(self, lines: Iterator[Any]) -> Iterator[Any]:
        """Pass lines on, and tell of the driver after the one that names it: this task may die any moment after."""
        told = False
        for line in lines:
            yield line
            if self._driver_id and not told:
                told = True
                self.named(self._driver_id)

    def _refuse_untracked(self, conn_id: str) -> None:
        master, mode = self.target
        if not _MASTER.fullmatch(master):
            # A URI without a port loses its scheme, and with it the tracking of the driver.
            raise RefusedError(conn_id, f"{master!r} is no Spark master", "Give local[2], yarn, spark://… or k8s://…")
        if mode != "cluster":
            return
        self._yarn_track_via_rm_api = self._is_yarn
        self._track_driver_via_k8s_api = self._is_kubernetes
        cure = "Use deploy-mode client, or give the connection what tracking needs"
        if not (self._is_yarn or self._is_kubernetes or self._should_track_driver_status):
            raise RefusedError(conn_id, f"cluster mode on {master} cannot be tracked", cure)
        try:
            self._validate_yarn_track_via_rm_api_config()
            if self._is_kubernetes:
                self._validate_track_driver_via_k8s_api_config()
        except (ValueError, RuntimeError) as error:
            raise RefusedError(conn_id, f"cluster mode without tracking ({error})", cure) from error

    def _keep_environment(self) -> None:
        """Give the submit its environment where the hook would print it into arguments, or refuse it."""
        given: dict[str, Any] = self._env_vars or {}
        self._given = {key: str(value) for key, value in given.items()}
        if self._should_track_driver_status:
            # Workers of a standalone cluster have an environment of their own.
            self._env_vars = None
        elif self._is_yarn or self._is_kubernetes:
            secret = "REWIND_REGISTRY_URL" in given and database.holds_secret(given["REWIND_REGISTRY_URL"])
            self._env_vars = {k: v for k, v in given.items() if k != "REWIND_REGISTRY_URL" or not secret}

    def _confirm_kill(self) -> None:
        self._driver_status = None
        deadline = time.monotonic() + CONFIRM_SECONDS
        while time.monotonic() < deadline:
            state = self._polled()
            if state in ENDED:
                self.log.info("driver %s ended %s", self._driver_id, state)
                return
            time.sleep(0.2)
        self.log.error("orphan driver %s: its kill could not be confirmed; end it by hand", self._driver_id)

    def _polled(self) -> str | None:
        """Ask the cluster once for the state of the driver, and return what is known of it."""
        command = self._build_track_driver_status_command()
        try:
            asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return self._driver_status
        self._process_spark_status_log(iter(asked.stdout.splitlines()))
        return self._driver_status


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _signal(tree: list[psutil.Process], how: str) -> None:
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            getattr(process, how)()


def _wait_gone(tree: list[psutil.Process]) -> None:
    # Not psutil.wait_procs: it would reap the submit, whose exit code then reads 0 to whoever waits for it.
    deadline = time.monotonic() + TERM_SECONDS
    while any(_alive(process) for process in tree) and time.monotonic() < deadline:
        time.sleep(0.05)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
