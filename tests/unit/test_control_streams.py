"""Streams: wishes and failures, and drivers that are started once and outlive who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from rewind.core.errors import IntegrityError, RefusedError, RetryError
from rewind.registry import generations, leases, schema, streams
from rewind.registry.database import now, writing
from rewind.runtime.drivers import submit, supervise
from tests.support.fakes import generation, installation

OWNER = "visits_converter-g1"


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def registry(settings):
    with writing(settings.registry_url) as connection:
        yield connection


# --- what is counted


def test_a_wish_makes_the_stream_and_changes_it(registry):
    assert streams.read(registry, OWNER) is None
    streams.wish(registry, OWNER, streams.GENERATION, streams.RUN)
    streams.wish(registry, OWNER, streams.GENERATION, streams.DRAIN)
    streams.wish(registry, "mirror-visits", streams.MIRROR, streams.RUN)

    assert [(s.owner, s.kind, s.wish, s.starts, s.failures) for s in streams.all_of(registry)] == [
        ("mirror-visits", "mirror", "run", 0, 0),
        (OWNER, "generation", "drain", 0, 0),
    ]


def test_starts_are_counted(registry):
    streams.wish(registry, OWNER, streams.GENERATION, streams.RUN)
    assert [streams.count_start(registry, OWNER) for _ in range(3)] == [1, 2, 3]


def test_a_stream_nobody_wished_for_is_refused(registry):
    with pytest.raises(RefusedError, match=f"'{OWNER}' is no stream"):
        streams.needed(registry, OWNER)


def test_pauses_double_until_the_fifth_failure_is_quarantined(registry):
    streams.wish(registry, OWNER, streams.GENERATION, streams.RUN)
    seen = []
    for number in range(1, 6):
        before = now()
        found = streams.count_failure(registry, OWNER, f"exit {number}")
        pause = found.next_start_at - before
        seen.append(
            (found.failures, round(pause.total_seconds()), found.quarantined_at is not None, found.last_failure)
        )
    assert seen == [
        (1, 5, False, "exit 1"),
        (2, 10, False, "exit 2"),
        (3, 20, False, "exit 3"),
        (4, 40, False, "exit 4"),
        (5, 80, True, "exit 5"),
    ]


def test_a_pause_is_never_longer_than_five_minutes(registry, monkeypatch):
    monkeypatch.setattr(streams, "MOST_FAILURES", 100)
    streams.wish(registry, OWNER, streams.GENERATION, streams.RUN)
    for _ in range(12):
        found = streams.count_failure(registry, OWNER, "")
    assert found.next_start_at <= now() + timedelta(minutes=5)
    assert found.quarantined_at is None


def test_a_wish_to_run_lifts_the_quarantine_and_a_wish_to_drain_does_not(registry):
    streams.wish(registry, OWNER, streams.GENERATION, streams.RUN)
    for _ in range(5):
        streams.count_failure(registry, OWNER, "")
    streams.wish(registry, OWNER, streams.GENERATION, streams.DRAIN)
    assert streams.needed(registry, OWNER).quarantined_at is not None

    streams.wish(registry, OWNER, streams.GENERATION, streams.RUN)
    found = streams.needed(registry, OWNER)
    assert (found.quarantined_at, found.failures, found.next_start_at) == (None, 0, None)


# --- drivers

ENDS = "import sys; print('no such table: visits'); sys.exit(7)"
STAYS = "import signal; signal.pause()"


class Driver:
    """What a supervisor starts instead of Spark: a Python process, its source free to choose."""

    def __init__(self):
        self.source = STAYS
        self.started = []

    def command(self, made):
        return [sys.executable, "-c", self.source]

    def submit(self, settings, owner, kind, number):
        self.started.append((owner, kind, number))
        return submit.Submit(Path("m"), [], Path("z"), "", {}, {}, f"{owner}.{number}", "local[2]")


@pytest.fixture
def driver(settings, monkeypatch):
    stub = Driver()
    monkeypatch.setattr(submit, "command", stub.command)
    monkeypatch.setattr(supervise, "submit_of", stub.submit)
    wish(settings, streams.RUN)
    yield stub
    with writing(settings.registry_url) as connection:
        pids = [
            s.launched["pid"] for s in streams.all_of(connection) if s.launched and s.launched["pid"] != os.getpid()
        ]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wish(settings, wanted):
    with writing(settings.registry_url) as connection:
        streams.wish(connection, OWNER, streams.GENERATION, wanted)


def stream(settings):
    with writing(settings.registry_url) as connection:
        return streams.needed(connection, OWNER)


def hold(settings, *pids):
    """Take the lease for processes, as a driver does once it runs."""
    holder = replace(leases.this_driver(), processes=tuple(leases.process_of(pid) for pid in pids))
    with writing(settings.registry_url) as connection:
        leases.take(connection, OWNER, holder)


def pid(settings):
    return stream(settings).launched["pid"]


def wait_dead(number):
    # Python reaps forgotten children whenever it starts another: then it has ended too.
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)


def kill(number):
    os.kill(number, signal.SIGKILL)
    wait_dead(number)


def forward(settings):
    """Let the pause before the next start be over."""
    with writing(settings.registry_url) as connection:
        connection.execute(update(schema.streams).values(next_start_at=now()))


def test_a_stream_that_nobody_wished_for_is_refused(settings):
    with pytest.raises(RefusedError, match="is no stream"):
        supervise.look(settings, OWNER)


def test_a_driver_is_started_once_however_often_one_looks(settings, driver):
    assert supervise.look(settings, OWNER).state == supervise.STARTING
    started = pid(settings)
    assert [supervise.look(settings, OWNER).state for _ in range(3)] == [supervise.STARTING] * 3
    assert (driver.started, pid(settings)) == ([(OWNER, "generation", 1)], started)


def test_a_driver_has_a_session_of_its_own_and_writes_into_its_log(settings, driver):
    driver.source = "print('hello', flush=True); import signal; signal.pause()"
    supervise.look(settings, OWNER)

    assert os.getsid(pid(settings)) == pid(settings) != os.getsid(0)
    assert (settings.home / "logs" / "streams" / OWNER / "driver.1.out").is_file()


def test_a_living_lease_is_attached_to_even_by_a_registry_that_forgot_the_start(settings, driver):
    supervise.look(settings, OWNER)
    hold(settings, pid(settings))
    started = pid(settings)
    with writing(settings.registry_url) as connection:
        streams.set_launched(connection, OWNER, None)

    seen = supervise.look(settings, OWNER)
    assert (seen.state, f"pid {started}, token 1" in seen.message) == (supervise.RUNNING, True)
    assert len(driver.started) == 1
    kill(started)


def test_a_driver_whose_parent_still_lives_is_not_doubled(settings, driver):
    supervise.look(settings, OWNER)
    first = pid(settings)
    hold(settings, first, os.getpid())
    kill(first)
    assert supervise.look(settings, OWNER).state == supervise.RUNNING
    assert len(driver.started) == 1


def test_a_supervisor_about_to_start_stands_for_its_driver(settings, driver, other_process):
    """Another supervisor crashed or waits between its record and its start: while it lives, nobody else starts."""
    with writing(settings.registry_url) as connection:
        streams.set_launched(connection, OWNER, asdict(leases.process_of(other_process.pid)))
    assert supervise.look(settings, OWNER).state == supervise.STARTING
    assert driver.started == []

    other_process.kill()
    other_process.wait()
    assert supervise.look(settings, OWNER).state == supervise.WAITING
    assert stream(settings).failures == 1


def test_a_process_that_has_taken_over_the_pid_of_a_driver_is_not_waited_for(settings, driver, other_process):
    stranger = replace(leases.process_of(other_process.pid), started=1)
    with writing(settings.registry_url) as connection:
        streams.set_launched(connection, OWNER, asdict(stranger))
    assert supervise.look(settings, OWNER).state == supervise.WAITING
    assert stream(settings).failures == 1


@pytest.fixture
def other_process():
    process = subprocess.Popen([sys.executable, "-c", STAYS])
    yield process
    process.kill()
    process.wait()


def test_racing_supervisors_start_one_driver(settings, driver):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(lambda _: supervise.look(settings, OWNER).state, range(4)))
    assert (set(seen), len(driver.started)) == ({supervise.STARTING}, 1)


def test_a_driver_that_ended_is_counted_with_its_last_words_and_comes_back_after_the_pause(settings, driver):
    driver.source = ENDS
    supervise.look(settings, OWNER)
    wait_dead(pid(settings))

    assert supervise.look(settings, OWNER).state == supervise.WAITING
    found = stream(settings)
    assert (found.failures, found.launched) == (1, None)
    assert found.cause == "no such table: visits"
    output = settings.home / "logs" / "streams" / OWNER / "driver.1.out"
    assert found.last_failure == f"no such table: visits\n{output}\nno such table: visits"
    assert [supervise.look(settings, OWNER).state for _ in range(2)] == [supervise.WAITING] * 2

    forward(settings)
    assert supervise.look(settings, OWNER).state == supervise.STARTING
    assert driver.started == [(OWNER, "generation", 1), (OWNER, "generation", 2)]


def test_the_last_words_of_one_driver_are_not_told_of_another_that_ended_meanwhile(
    settings, driver, monkeypatch, other_process
):
    told = []

    def words(*_):
        # The disk is slow: another supervisor has counted that end, started one more, and seen that end as well.
        told.append(stream(settings).launched)
        if len(told) == 1:
            with writing(settings.registry_url) as connection:
                streams.set_launched(connection, OWNER, {"pid": other_process.pid, "started": 2})
        return "driver.out", f"words {len(told)}"

    with writing(settings.registry_url) as connection:
        streams.set_launched(connection, OWNER, {"pid": other_process.pid, "started": 1})
    monkeypatch.setattr(supervise, "_output", words)
    assert supervise.look(settings, OWNER).state == supervise.WAITING
    assert [launched["started"] for launched in told] == [1, 2]
    found = stream(settings)
    assert (found.failures, found.last_failure, found.launched) == (1, "words 2\ndriver.out\nwords 2", None)


def test_a_driver_that_another_supervisor_started_meanwhile_is_not_counted_as_ended(
    settings, driver, monkeypatch, other_process
):
    def words(*_):
        with writing(settings.registry_url) as connection:
            streams.set_launched(connection, OWNER, asdict(leases.process_of(other_process.pid)))
        return "driver.out", "words"

    with writing(settings.registry_url) as connection:
        streams.set_launched(connection, OWNER, {"pid": other_process.pid, "started": 1})
    monkeypatch.setattr(supervise, "_output", words)
    assert supervise.look(settings, OWNER).state == supervise.STARTING
    assert (stream(settings).failures, driver.started) == (0, [])


def test_a_crash_loop_is_quarantined_until_it_is_wished_to_run(settings, driver):
    driver.source = ENDS
    for _ in range(5):
        supervise.look(settings, OWNER)
        wait_dead(pid(settings))
        seen = supervise.look(settings, OWNER)
        forward(settings)

    assert seen.state == supervise.QUARANTINED
    assert "quarantined after 5 failures" in seen.message
    assert "no such table: visits" in seen.message
    assert (supervise.look(settings, OWNER).state, len(driver.started)) == (supervise.QUARANTINED, 5)

    wish(settings, streams.RUN)
    assert supervise.look(settings, OWNER).state == supervise.STARTING


def test_what_no_further_start_can_heal_is_set_aside_at_once(settings, driver):
    driver.source = "import sys; print('ERROR [g1] QuarantineError: out-g1: DELETE at version 3'); sys.exit(71)"
    supervise.look(settings, OWNER)
    wait_dead(pid(settings))
    seen = supervise.look(settings, OWNER)
    assert (seen.state, "out-g1: DELETE at version 3" in seen.message) == (supervise.QUARANTINED, True)
    assert (stream(settings).failures, len(driver.started)) == (1, 1)
    wish(settings, streams.RUN)
    assert supervise.look(settings, OWNER).state == supervise.STARTING


def test_the_last_words_are_an_error_from_its_first_line_on(settings, driver):
    driver.source = "print('INFO'); print('ERROR of before'); print('12:00 ERROR [g1] torn'); print('plan\\n' * 90)"
    supervise.look(settings, OWNER)
    wait_dead(pid(settings))
    supervise.look(settings, OWNER)
    found = stream(settings)
    assert found.cause == "torn"
    assert found.last_failure.split("\n")[2:5] == ["12:00 ERROR [g1] torn", "plan", "plan"]


def test_the_cause_at_the_end_of_a_long_traceback_is_kept(settings, driver):
    frames = "'  File \"x.py\", line 1, in f\\n' * 900"
    driver.source = f"print('12 ERROR [g1] Traceback (most recent call last):\\n' + {frames} + 'KeyError: 7')"
    supervise.look(settings, OWNER)
    wait_dead(pid(settings))
    seen = supervise.look(settings, OWNER)
    assert seen.message.endswith("after 1 failures; KeyError: 7")
    found = stream(settings)
    assert (found.cause, found.last_failure.endswith("line 1, in f\nKeyError: 7")) == ("KeyError: 7", True)


def test_a_world_that_is_away_quarantines_nothing_however_long_it_is(settings, driver):
    driver.source = "import sys; print('ERROR [g1] RetryError: Kafka at nowhere: away'); sys.exit(75)"
    for _ in range(7):
        assert supervise.look(settings, OWNER).state == supervise.STARTING
        wait_dead(pid(settings))
        seen = supervise.look(settings, OWNER)
        assert (seen.state, "Kafka at nowhere: away" in seen.message) == (supervise.WAITING, True)
        forward(settings)

    found = stream(settings)
    assert (found.failures, found.quarantined_at) == (0, None)
    assert "Kafka at nowhere: away" in found.last_failure


@pytest.mark.parametrize(
    ("ahead", "state"), [(timedelta(minutes=4), supervise.WAITING), (timedelta(hours=1), supervise.STARTING)]
)
def test_a_clock_that_was_set_back_does_not_hold_a_stream_up(settings, driver, ahead, state):
    with writing(settings.registry_url) as connection:
        connection.execute(update(schema.streams).values(next_start_at=now() + ahead, failures=1))
    assert supervise.look(settings, OWNER).state == state


def test_a_wish_to_drain_starts_nothing_and_its_end_is_no_failure(settings, driver):
    supervise.look(settings, OWNER)
    first = pid(settings)
    hold(settings, first)
    wish(settings, streams.DRAIN)
    assert supervise.look(settings, OWNER).state == supervise.DRAINING

    kill(first)
    assert [supervise.look(settings, OWNER).state for _ in range(2)] == [supervise.DRAINED] * 2
    assert (stream(settings).failures, stream(settings).launched, len(driver.started)) == (0, None, 1)


def test_failures_are_forgiven_after_a_healthy_hour(settings, driver):
    supervise.look(settings, OWNER)
    hold(settings, pid(settings))
    table = schema.streams
    for minutes, failures in ((59, 3), (61, 0)):
        with writing(settings.registry_url) as connection:
            connection.execute(update(table).values(failures=3, launched_at=now() - timedelta(minutes=minutes)))
        supervise.look(settings, OWNER)
        assert stream(settings).failures == failures


def test_a_start_that_fails_is_a_failure_and_leaves_nothing_behind(settings, driver, monkeypatch):
    def changed(*_):
        raise IntegrityError("bundle: changed since it was frozen: logic.py")

    monkeypatch.setattr(supervise, "submit_of", changed)
    with pytest.raises(IntegrityError):
        supervise.look(settings, OWNER)
    found = stream(settings)
    assert (found.failures, found.launched) == (1, None)
    assert found.last_failure == "IntegrityError: bundle: changed since it was frozen: logic.py"
    assert supervise.look(settings, OWNER).state == supervise.WAITING


def test_a_driver_that_could_not_be_recorded_does_not_live_on(settings, driver, monkeypatch):
    begun = []
    original = subprocess.Popen
    monkeypatch.setattr(supervise.subprocess, "Popen", lambda *a, **k: begun.append(original(*a, **k)) or begun[-1])

    def away(connection, owner, launched):
        if launched is not None and launched["pid"] != os.getpid():
            raise RetryError("registry away")
        real(connection, owner, launched)

    real = streams.set_launched
    monkeypatch.setattr(streams, "set_launched", away)
    with pytest.raises(RetryError, match="registry away"):
        supervise.look(settings, OWNER)

    assert begun[0].wait(20) == -signal.SIGKILL


# --- ending


def test_stop_all_ends_drivers_by_their_own_process_and_leaves_the_wish(settings, driver, tmp_path):
    mark = tmp_path / "ended"
    driver.source = (
        "import pathlib, signal, sys\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(mark)!r}).write_text('ended'), sys.exit(0)))\n"
        "print('ready', flush=True)\n"
        "signal.pause()"
    )
    supervise.look(settings, OWNER)
    number = pid(settings)
    wait_ready(settings)
    hold(settings, number)
    supervise.stop_all(settings, timeout=30)

    assert mark.read_text() == "ended"
    assert (stream(settings).wish, stream(settings).launched, stream(settings).failures) == ("run", None, 0)
    assert supervise.look(settings, OWNER).state == supervise.STARTING


def wait_ready(settings):
    """Block until the driver has written its first line."""
    output = settings.home / "logs" / "streams" / OWNER / "driver.1.out"
    while not output.read_text().endswith("\n"):
        os.sched_yield()


def test_stop_all_ends_a_driver_that_has_no_lease_yet_and_one_that_will_not_hear(settings, driver):
    driver.source = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    )
    supervise.look(settings, OWNER)
    number = pid(settings)
    wait_ready(settings)
    supervise.stop_all(settings, timeout=0.2)
    assert leases.process_of(number) is None

    driver.source = STAYS
    supervise.look(settings, OWNER)
    number = pid(settings)
    supervise.stop_all(settings, timeout=60)
    assert os.waitid(os.P_PID, number, os.WEXITED).si_status == signal.SIGTERM


def test_stop_all_spares_what_has_taken_over_a_pid_and_this_very_process(settings, driver, other_process, monkeypatch):
    stranger = replace(leases.process_of(other_process.pid), started=1)
    with writing(settings.registry_url) as connection:
        streams.set_launched(connection, OWNER, asdict(stranger))
        streams.wish(connection, "mirror-visits", streams.MIRROR, streams.RUN)
        streams.set_launched(connection, "mirror-visits", asdict(leases.process_of(os.getpid())))
    signalled = []
    with monkeypatch.context() as patched:
        patched.setattr(supervise.os, "kill", lambda *to: signalled.append(to))
        supervise.stop_all(settings, timeout=0)
    assert signalled == []


def test_end_waits_for_lease_and_process(settings, driver):
    supervise.end(settings, "nobody-g1", timeout=0)
    supervise.look(settings, OWNER)
    number = pid(settings)
    with pytest.raises(RetryError, match=f"{OWNER}: its driver does not end within 0 s"):
        supervise.end(settings, OWNER, timeout=0)
    hold(settings, number)
    with writing(settings.registry_url) as connection:
        streams.set_launched(connection, OWNER, None)
    with pytest.raises(RetryError):
        supervise.end(settings, OWNER, timeout=0)
    kill(number)
    supervise.end(settings, OWNER, timeout=0)


# --- places


@pytest.mark.parametrize("place", [supervise.generation_folder, supervise.log_folder, supervise.checkpoint_folder])
@pytest.mark.parametrize("owner", ["../live", "..", "a/b", ""])
def test_a_hostile_name_reaches_no_folder(settings, place, owner):
    with pytest.raises(RefusedError):
        place(settings, owner)


def test_a_stream_is_submitted_from_its_frozen_bundle_alone(settings):
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(bundle="0" * 16), None)
    (settings.generations / OWNER / "bundle").mkdir(parents=True)
    with pytest.raises(IntegrityError, match="cannot be read"):
        supervise.submit_of(settings, OWNER, streams.GENERATION, 1)
