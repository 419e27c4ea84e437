"""No registry transaction holds a slow call: what stops one stops each kind, and nothing else (ADR 0033, case F01)."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import GatewayConnection
from py4j.protocol import Py4JNetworkError

from rewind.core.errors import IntegrityError, LeaseLostError, RetryError
from rewind.core.offsets import OffsetRange
from rewind.registry import chunk_log, leases
from rewind.registry.database import reading, writing
from rewind.registry.snapshot import snapshot
from rewind.runtime.kafka.broker import Broker
from rewind.steps.lifecycle import backfill
from rewind.steps.lifecycle.backfill import Work
from tests.scenarios import crowd
from tests.support import fakes, short_transactions
from tests.support.fakes import FakeBroker, installation
from tests.support.held_transactions import SlowCallError, told
from tests.support.workshop import PROJECT

# As a module of the product: a test's own transaction may hold what it likes.
PRODUCT = """
def held(opened, url, call):
    with opened(url):
        return call()
"""
SITE = "within the registry transaction of rewind.steps.example:3"


def product():
    space = {"__name__": "rewind.steps.example"}
    exec(compile(PRODUCT, "/product/rewind/steps/example.py", "exec"), space)
    return space["held"]


held = product()


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path)


def asked(kind, command):
    """Send a command by a connection that leads nowhere."""
    return kind.send_command(SimpleNamespace(), command)


SLOW = {
    "open": lambda s: (s.home / "x").write_text(""),
    "os.stat": lambda s: s.home.exists(),
    "os.lstat": lambda s: os.path.realpath(s.home),
    "os.access": lambda s: os.access(s.home, os.R_OK),
    "os.readlink": lambda s: s.home.readlink(),
    "os.statvfs": lambda s: os.statvfs(s.home),
    "os.listdir": lambda s: list(s.home.iterdir()),
    "os.scandir": lambda s: list(os.walk(s.home)),
    "os.mkdir": lambda s: (s.home / "x").mkdir(),
    "os.rename": lambda s: (s.home / "x").replace(s.home / "y"),
    "os.remove": lambda s: (s.home / "x").unlink(),
    "shutil.rmtree": lambda s: shutil.rmtree(s.home),
    "socket.getaddrinfo": lambda _: socket.create_connection(("127.0.0.1", 1)),
    "subprocess.Popen": lambda _: subprocess.run(["true"], check=True),
    "KafkaAdminClient.__init__": lambda _: KafkaAdminClient(bootstrap_servers="127.0.0.1:1"),
    "Broker.topic": lambda s: Broker(s).topic("visits"),
    "Broker.delete_group": lambda s: Broker(s).delete_group("visits"),
    "FakeBroker.topic": lambda _: FakeBroker().topic("visits"),
    "FakeMirror.state": lambda _: fakes.world().mirror.state("visits"),
    "ClientServerConnection.send_command": lambda _: asked(ClientServerConnection, "c\no1\n"),
    "GatewayConnection.send_command": lambda _: asked(GatewayConnection, "c\no1\n"),
}


@pytest.mark.parametrize("opened", [reading, writing, snapshot])
@pytest.mark.parametrize("name", SLOW)
def test_a_slow_call_within_a_transaction_fails_with_its_name_and_where_it_began(settings, name, opened):
    with pytest.raises(SlowCallError) as stopped:
        held(opened, settings.registry_url, lambda: SLOW[name](settings))
    assert str(stopped.value).startswith(name)
    assert str(stopped.value).endswith(SITE)
    assert told.take() == [str(stopped.value)]


def test_who_catches_a_slow_call_fails_the_test_all_the_same(settings):
    run = short_transactions.pytest_runtest_call(None)
    next(run)

    def caught():
        with pytest.raises(SlowCallError):
            settings.home.exists()

    held(writing, settings.registry_url, caught)
    with pytest.raises(AssertionError, match=rf"os\.stat {settings.home}: {SITE}"):
        next(run)


def quick(settings):
    logging.getLogger("quick").warning("told", exc_info=ValueError("with the lines of its code"))
    sys.modules.pop("tests.support.axe", None)
    __import__("tests.support.axe")
    os.fstat(1)
    assert leases.process_of(os.getpid()) is not None
    assert leases.this_driver().boot


def test_what_python_and_a_lease_need_passes(settings):
    held(writing, settings.registry_url, lambda: quick(settings))
    # The JVM is told what it may forget, whenever Python cleans up: here it has no connection.
    with pytest.raises(Py4JNetworkError):
        held(writing, settings.registry_url, lambda: asked(ClientServerConnection, "m\nd\no1\ne\n"))


def test_beside_a_transaction_and_after_it_everything_passes(settings):
    def other():
        thread = threading.Thread(target=lambda: seen.append(settings.home.exists()))
        thread.start()
        thread.join()

    seen = []
    held(writing, settings.registry_url, other)
    with pytest.raises(ValueError, match="ended"):
        held(writing, settings.registry_url, lambda: int("ended"))
    seen.append(settings.home.exists())
    with writing(settings.registry_url):
        seen.append(settings.home.exists())
    assert seen == [True, True, True]


def test_a_transaction_within_one_is_stopped(settings):
    # The inner one would wait for the outer one until its patience ends.
    with pytest.raises(SlowCallError, match=r"os\.stat .*registry\.db"):
        held(writing, settings.registry_url, lambda: held(writing, settings.registry_url, int))
    told.take()


def test_a_driver_of_the_warm_jvm_is_watched_too(settings):
    script = f"""
import sys
sys.path[:0] = [{str(PROJECT / "tests" / "support")!r}, {str(PROJECT / "include")!r}]
import warm_submit
before = list(sys.path)
warm_submit.watch_transactions()
assert sys.path == before and "pytest" not in sys.modules
from pathlib import Path
from rewind.registry.database import reading, writing
space = {{"__name__": "rewind.steps.example"}}
exec(compile({PRODUCT!r}, "/product/rewind/steps/example.py", "exec"), space)
space["held"](writing, {settings.registry_url!r}, Path("/").exists)
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=settings.home)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f"tests.support.held_transactions.SlowCallError: os.stat /: {SITE}"


# What the product does so that none is stopped.


class Guarded:
    """A lease that was taken with a token."""

    def __init__(self, settings, job_id):
        with writing(settings.registry_url) as connection:
            self.token = leases.take(connection, job_id, leases.this_driver())


@pytest.fixture
def work():
    return Work("rw-1", fakes.plan(), fakes.PIPELINE, fakes.generation(number=2))


WAVE = {0: OffsetRange(0, 5)}


def test_a_wave_is_cut_outside_and_once(settings, work):
    guard = Guarded(settings, work.plan.job_id)
    cuts = []

    def cut(ranges, version):
        assert settings.home.exists()
        cuts.append((ranges, version))
        return [{0: OffsetRange(0, 3)}, {0: OffsetRange(3, 5)}]

    todo = backfill.cut_wave(settings, work, guard, cut, 0, 7, WAVE)
    assert [(c.number, c.ranges) for c in todo] == [(0, {0: OffsetRange(0, 3)}), (1, {0: OffsetRange(3, 5)})]
    with writing(settings.registry_url) as connection:
        chunk_log.finish(connection, "rw-1", 0, 3, 0)
    # After a death: what the attempt before this one cut stays, whatever this one would cut.
    again = backfill.cut_wave(settings, work, guard, lambda *_: [WAVE], 0, 7, WAVE)
    assert [(c.number, c.ranges) for c in again] == [(1, {0: OffsetRange(3, 5)})]
    assert cuts == [(WAVE, 7)]


def test_who_lost_the_lease_while_it_cut_records_no_wave(settings, work):
    guard = Guarded(settings, work.plan.job_id)

    def cut(*_):
        with writing(settings.registry_url) as connection:
            leases.give_back(connection, work.plan.job_id, guard.token)
            leases.take(connection, work.plan.job_id, leases.this_driver())
        return [WAVE]

    with pytest.raises(LeaseLostError):
        backfill.cut_wave(settings, work, guard, cut, 0, 7, WAVE)
    with writing(settings.registry_url) as connection:
        assert chunk_log.read(connection, "rw-1") == []


def test_a_mirror_that_is_not_whole_stops_a_wave_before_it_is_recorded(settings, work):
    guard = Guarded(settings, work.plan.job_id)

    def cut(*_):
        raise IntegrityError("files are gone")

    with pytest.raises(IntegrityError):
        backfill.cut_wave(settings, work, guard, cut, 0, 7, WAVE)
    with writing(settings.registry_url) as connection:
        assert chunk_log.read(connection, "rw-1") == []


@pytest.mark.shows("truth", f01_small="{pipelines} pipelines beside {files} files")
@pytest.mark.parametrize(("pipelines", "files"), [(8, 40)])
def test_f01_no_pipeline_waits_for_another_one_that_lists_a_slow_disk(settings, monkeypatch, pipelines, files):
    waits = crowd.backfill_beside_writers(settings, monkeypatch, pipelines, files, at_a_time=10)
    assert (waits.writes, waits.files) == (pipelines * files // 10, files)
    assert waits.longest <= 1
    with writing(settings.registry_url) as connection:
        assert [c.ranges for c in chunk_log.read(connection, "rw-1")] == [{0: OffsetRange(0, 5), 1: OffsetRange(0, 5)}]


def test_f01_a_transaction_that_is_held_while_a_disk_is_listed_lets_others_wait(settings):
    slow = crowd.SlowFiles(at_a_time=1)

    def act():
        with writing(settings.registry_url):
            list(slow.through(["a"]))

    with pytest.raises(RetryError, match="database is locked"):
        crowd.beside_writers(settings.registry_url, ["other-g1"], act, slow)
