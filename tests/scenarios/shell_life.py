"""A rewind by a person at a shell: each command of the command line against a running stack."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib import request

from rewind.cli.exit_codes import INTERRUPTED
from rewind.local import ports
from rewind.registry import streams
from rewind.views.metrics import METRICS
from tests.support.mailbox import Mailbox
from tests.support.stage import RUN_SECONDS, Stage
from tests.support.workshop import PROJECT, wait_for

ANSWER_SECONDS = 30


class Shell:
    """A shell of somebody whose Airflow is a stage's."""

    def __init__(self, stage: Stage) -> None:
        """Name the stage in its environment."""
        stack = stage.stack
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("REWIND_", "AIRFLOW_"))}
        access = {"REWIND_AIRFLOW_URL": stack.airflow_url, "REWIND_AIRFLOW_USER": stack.user}
        self._ports = stage.home / "shell.ports"
        secret = {"REWIND_AIRFLOW_PASSWORD": stack.password, "PYTHONPATH": str(PROJECT / "include")}
        self.environment = {**inherited, **stack.settings.environment(), **access, **secret}

    def tried(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `rewind` with some words."""
        command = [sys.executable, "-m", "rewind", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def said(self, *words: str) -> Any:
        """Run `rewind` with some words and `--json`; return what it says."""
        done = self.tried(*words, "--json")
        assert done.returncode == 0, f"rewind {' '.join(words)}: {done.stderr[-3_000:]}"
        return json.loads(done.stdout)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve pointer and metrics; give the address."""
        port = ports.choose("shell", None, self._ports)
        command = [sys.executable, "-m", "rewind", "serve-pointer", "--port", str(port)]
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        try:
            wait_for("the pointer's server", lambda: bool(_fetched(f"{url}/metrics")), ANSWER_SECONDS)
            yield url
        finally:
            process.terminate()
            process.wait(ANSWER_SECONDS)


OF_STATE = {"rewind_job_watermark_timestamp_seconds", "rewind_job_watermark_stuck"}
"""Metrics of pipelines with state alone."""


def live_at_a_shell(stage: Stage) -> dict[str, Any]:
    """Look around, plan, start, answer, roll back, start again, abort, and look at what is garbage.

    Args:
        stage: A stack whose pipeline, without state, is deployed, and whose code has changed since.
    """
    shell, shop, name = Shell(stage), stage.shop, stage.shop.pipeline
    with shell.serving() as url:
        told: set[str] = set()

        def wait(what: str, condition: Callable[[], bool]) -> None:
            def met() -> bool:
                told.update(re.findall(r"^(rewind_\w+)", _fetched(f"{url}/metrics"), re.MULTILINE))
                return condition()

            wait_for(what, met, RUN_SECONDS)

        _live(stage, shell, wait)
        stage.run(f"nightly_replay_{name}", {})
        assert [(night["label"] < night["end_at"], night["sample"]) for night in shell.said("nights", name)] == [
            (True, "all partitions")
        ]
        wait("the night", lambda: "rewind_night_state" in told)
        wait("what was deleted", lambda: "rewind_deletions_total" in told)
        assert json.loads(_fetched(f"{url}/pointer/{name}"))["job_id"] == stage.live()
    shell.said("collect")
    shell.said("prove", "--dry-run")
    shell.said("record-deletion", shop.topic, "--partition", "0", "--from", "0", "--to", "1")
    (shown,) = (one["live"] for one in shell.said("status")["pipelines"])
    assert shown == stage.live()
    missing = {metric.name for metric in METRICS} - told - OF_STATE
    return {"live_at_the_end": shown, "metrics_told": len(told), "metrics_not_told": sorted(missing)}


def quarantined_and_told(stage: Stage, box: Mailbox) -> dict[str, Any]:
    """End the live job's drivers until it is quarantined, see who is told, and let it run again."""
    shell, shop, live = Shell(stage), stage.shop, stage.live()

    def ended() -> bool:
        holder = shop.holder(live)
        if holder is not None:
            os.killpg(holder.group, signal.SIGKILL)
        with shop.registry() as connection:
            return streams.needed(connection, live).quarantined_at is not None

    wait_for("the quarantine", ended, RUN_SECONDS)
    wait_for("the mail of the quarantine", lambda: live in box.told("quarantine"), RUN_SECONDS)
    shell.said("run", live)
    wait_for("its next driver", lambda: shop.holder(live) is not None, RUN_SECONDS)
    assert live in _watched(shell)
    return {"told_of": sorted({str(mail["Subject"]) for mail in box.mails})}


def _watched(shell: Shell) -> str:
    """Look on at a terminal until there is something to see, and end it as a person does."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "rewind", "status", "--watch"]

    def heed() -> None:
        # Whoever runs the tests in the background has it ignored, and children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    terminal = {**shell.environment, "TERM": "xterm"}
    process = subprocess.Popen(command, env=terminal, stdout=slave, stderr=slave, preexec_fn=heed)  # noqa: PLW1509 - no threads of ours
    os.close(slave)
    seen = b""
    while b"live" not in seen:
        seen += os.read(master, 65_536)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):
        while more := os.read(master, 65_536):
            seen += more
    assert process.wait(ANSWER_SECONDS) == INTERRUPTED
    return seen.decode(errors="replace")


def _live(stage: Stage, shell: Shell, wait: Callable[[str, Callable[[], bool]], None]) -> None:
    name, live = stage.shop.pipeline, stage.live()
    number = max(int(one["job"]["job_id"].rpartition("-g")[2]) for one in shell.said("generations", name))
    assert shell.said("resolve", name)["job_id"] == live
    plan_id = shell.said("plan", name, "--observe", "PT5S", "--reason", "at a shell")["id"]
    assert shell.said("plans", "show", plan_id)["id"] == plan_id
    started = shell.said("start", name, "--apply-plan", plan_id)
    rewind_id, run_id = started["rewind"], started["run_id"]
    wait("the rewind", lambda: _state(stage, rewind_id) == "active")
    assert shell.said("throttle", rewind_id, "--rate", "1000")["records_per_second"] == 1000
    wait("the question", lambda: bool(stage.api.hitl_pending(stage.rewind_dag, run_id)))
    # Airflow may lose an answer that comes within the second of its question.
    wait("the answer", lambda: shell.tried("approve", rewind_id, "--yes", "--reason", "told", "--json").returncode == 0)
    made = f"{name}-g{number + 1}"
    wait("the switch", lambda: stage.live() == made)
    assert shell.said("diff", live, made)["differences"]
    wait("the end of the observation", lambda: _state(stage, rewind_id) == "finished")
    shell.said("rollback", name, "--no-dry-run", "--reason", "shown at a shell")
    wait("the way back", lambda: stage.live() == live)
    again = shell.said("start", name, "--reason", "to be aborted")
    second, run_id = again["rewind"], again["run_id"]
    wait("the second rewind", lambda: _state(stage, second) == "active")
    shell.said("throttle", second, "--rate", "1")
    # A task drives the step: it is ended, and its driver with it.
    wait("its backfill", lambda: stage.running(run_id) == {"backfill"})
    shell.said("abort", second, "--reason", "shown")
    wait("its end", lambda: _state(stage, second) == "aborted")


def _state(stage: Stage, rewind_id: str) -> str:
    found, _ = stage.rewind(rewind_id)
    return "" if found is None else found.state


def _fetched(url: str) -> str:
    try:
        with request.build_opener(request.ProxyHandler({})).open(url, timeout=ANSWER_SECONDS) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
