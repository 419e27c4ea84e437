"""Waits go by what moves: what counts, what does not, who is named when nothing does, and what is said meanwhile."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rewind.core.errors import RetryError
from rewind.local import process_table, voice, watched
from rewind.local.process_table import Entry
from rewind.local.progress import CPU_SECONDS, Look
from rewind.local.voice import LINE_SECONDS, SILENT_SECONDS, Voice
from rewind.local.waiting import StuckError, Waiting
from rewind.local.watched import Watched

SLEEP = "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print(flush=True); {SLEEP}"


class Clock:
    """A clock that only goes forward while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Spoken:
    """A voice and what it has said."""

    def __init__(self, clock: Clock, *, terminal: bool = False) -> None:
        self.text = io.StringIO()
        self.voice = Voice(Console(file=self.text, width=200, force_terminal=terminal), clock)

    @property
    def lines(self) -> list[str]:
        return self.text.getvalue().splitlines()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(clock: Clock) -> Callable[..., Waiting]:
    def waiting(*rests_on: Watched) -> Waiting:
        return Waiting(Spoken(clock).voice, lambda: rests_on, clock=clock, sleep=clock.sleep)

    return waiting


@pytest.fixture
def child() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def stop(pid: int) -> None:
    """Stop a child of this process and see it stopped."""
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)


def growing(monkeypatch: pytest.MonkeyPatch, clock: Clock, share: float, state: str = "S") -> None:
    """Let process 7 be in a state, and use a share of a core."""
    table: Callable[[], dict[int, Entry]] = lambda: {7: Entry(7, 1, 7, state, 0, share * clock.now)}  # noqa: E731
    monkeypatch.setattr(process_table, "entries", table)


def never() -> Look[bool]:
    return Look(None, "4 of 9 records", 4)


def test_what_is_there_is_returned(make: Callable[..., Waiting]) -> None:
    looks = iter([Look(), Look(0), Look("there")])
    assert make().until("it", lambda: next(looks), pause=1) == "there"


def test_it_goes_on_for_as_long_as_marks_change(make: Callable[..., Waiting], clock: Clock) -> None:
    def look() -> Look[float]:
        return Look(clock.now if clock.now >= 1_200 else None, marks=clock.now // 80)

    assert make().until("it", look, pause=40) == 1_200


def test_it_fails_when_nothing_has_moved(make: Callable[..., Waiting], clock: Clock) -> None:
    with pytest.raises(StuckError) as raised:
        make().until("it to end", never, pause=10)
    assert clock.now == 90
    assert str(raised.value) == (
        "no process works on it: look at make logs NAME=scheduler. "
        "Waited for it to end: nothing has moved for 90 s (4 of 9 records)"
    )


def test_nobody_who_answers_now_and_then_moves_by_it(make: Callable[..., Waiting], clock: Clock) -> None:
    def look() -> Look[bool]:
        if clock.now % 20:
            raise RetryError("the registry is locked")
        return never()

    with pytest.raises(StuckError, match=r"nothing has moved for 90 s \(no answer: the registry is locked\)"):
        make().until("it", look, pause=10)


def test_cpu_time_of_those_that_work_on_it_moves(
    make: Callable[..., Waiting], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing(monkeypatch, clock, share=CPU_SECONDS / 89)
    look: Callable[[], Look[bool]] = lambda: Look(clock.now > 3_600 or None)  # noqa: E731
    assert make().until("it", look, lambda: [Watched("driver", (7,))], pause=1)


def test_the_cpu_time_of_an_idle_process_does_not(
    make: Callable[..., Waiting], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing(monkeypatch, clock, share=CPU_SECONDS / 100)
    with pytest.raises(StuckError, match=r"^driver, pid 7, lives\. Waited for it: nothing has moved for 90 s"):
        make().until("it", never, lambda: [Watched("driver", (7,))], pause=1)


@pytest.mark.parametrize(
    ("state", "told"),
    [("T", "pid 7, is stopped (state T)"), ("t", "pid 7, is stopped (state t)"), ("Z", "pid 7, is a zombie (state Z)")],
)
def test_what_everything_rests_on_fails_a_wait_that_moves(
    make: Callable[..., Waiting], clock: Clock, monkeypatch: pytest.MonkeyPatch, state: str, told: str
) -> None:
    growing(monkeypatch, clock, share=0, state=state)
    with pytest.raises(StuckError) as raised:
        make(Watched("driver of a-g1", (7,), replaced=False)).until("it", lambda: Look(marks=clock.now), pause=10)
    assert clock.now == 90
    assert str(raised.value).startswith(f"driver of a-g1, {told}. ")


def test_what_is_gone_fails_only_where_nobody_starts_another(make: Callable[..., Waiting], clock: Clock) -> None:
    moves: Callable[[], Look[bool]] = lambda: Look(clock.now >= 600 or None, marks=clock.now)  # noqa: E731
    assert make(Watched("driver", ())).until("it", moves, pause=10)
    with pytest.raises(StuckError, match=r"^broker is gone\. make up starts it again"):
        make(Watched("broker", (), replaced=False, hint="make up starts it again")).until(
            "it", lambda: Look(marks=clock.now), pause=10
        )


def test_a_real_process_that_is_stopped_is_named_with_its_log_and_the_cure(
    make: Callable[..., Waiting], child: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path, clock: Clock
) -> None:
    pid = child(SLEEP).pid
    stop(pid)
    log = tmp_path / "driver.log"
    log.write_text("WARN slow\nERROR StreamExecution no luck\nINFO bye\n")
    driver = Watched("driver of a-g1", (pid,), (tmp_path / "none.log", log))
    with pytest.raises(StuckError) as raised:
        make(driver).until("a-g1 to catch up", never, lambda: [driver], pause=10)
    assert str(raised.value) == (
        f"driver of a-g1, pid {pid}, is stopped (state T); {log} ends: ERROR StreamExecution no luck. "
        f"Continue it: kill -CONT {pid}. Waited for a-g1 to catch up: 4 of 9 records"
    )


def test_who_works_on_it_and_is_rested_on_is_reported_once(
    make: Callable[..., Waiting], child: Callable[[str], subprocess.Popen[bytes]], clock: Clock
) -> None:
    pid = child(SLEEP).pid
    driver = Watched("driver of a-g1", (pid,))

    def look() -> Look[bool]:
        if clock.now == 20:
            stop(pid)
        return never()

    with pytest.raises(StuckError) as raised:
        make(driver).until("it", look, lambda: [driver], pause=10)
    assert clock.now == 90
    assert str(raised.value) == (
        f"driver of a-g1, pid {pid}, is stopped (state T). Continue it: kill -CONT {pid}. "
        "Waited for it: nothing has moved for 90 s (4 of 9 records)"
    )


def test_one_stopped_descendant_is_enough(
    make: Callable[..., Waiting], child: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    parent = child(PARENT)
    assert parent.stdout is not None
    parent.stdout.readline()
    below = next(e.pid for e in process_table.entries().values() if e.parent == parent.pid)
    os.kill(below, signal.SIGSTOP)
    driver = Watched("driver", (parent.pid,))
    state = lambda: process_table.entries()[below].state  # noqa: E731
    while state() != "T":
        pass
    with pytest.raises(StuckError, match=rf"^driver, pid {below}, is stopped"):
        make(driver).check()


def test_what_was_continued_is_well_again(
    make: Callable[..., Waiting], child: Callable[[str], subprocess.Popen[bytes]], clock: Clock
) -> None:
    pid = child(SLEEP).pid
    stop(pid)
    waits = make(Watched("driver", (pid,)))

    def look() -> Look[bool]:
        if clock.now == 80:
            os.kill(pid, signal.SIGCONT)
            os.waitpid(pid, os.WCONTINUED)
        return Look(clock.now > 300 or None, marks=clock.now)

    assert waits.until("it", look, pause=10)
    waits.check()


def test_without_a_terminal_a_line_says_what_is_waited_for_at_least_every_ten_seconds(clock: Clock) -> None:
    spoken = Spoken(clock)
    waits = Waiting(spoken.voice, clock=clock, sleep=clock.sleep)
    said: list[tuple[float, int]] = []

    def look() -> Look[bool]:
        said.append((clock.now, len(spoken.lines)))
        return Look(clock.now >= 60 or None, f"{100 * clock.now:,.0f} of 6,000 records", clock.now)

    waits.until("a-g1 to catch up", look, pause=2)
    waits.until("the mirror", lambda: Look(clock.now >= 63 or None, marks=clock.now), pause=1)
    assert spoken.lines[0] == "waiting for a-g1 to catch up: 600 of 6,000 records, 6 s"
    times = [at for (at, count), (_, before) in zip(said[1:], said, strict=False) if count > before]
    assert max(b - a for a, b in zip([0.0, *times], times, strict=False)) <= LINE_SECONDS + 2 + 2 < 10


def test_without_a_terminal_a_look_that_takes_long_is_no_silence(clock: Clock) -> None:
    spoken = Spoken(clock)
    with spoken.voice.doing("starting Airflow …"):
        clock.now = SILENT_SECONDS - 0.1
        spoken.voice.beat()
        assert spoken.lines == []
        clock.now = SILENT_SECONDS
        spoken.voice.beat()
        spoken.voice.show("waiting for a-g1: 4 of 9, 7 s")
        clock.now = 2 * SILENT_SECONDS
        spoken.voice.beat()
    assert spoken.lines == ["starting Airflow … (7 s ago)", "waiting for a-g1: 4 of 9, 7 s (7 s ago)"]
    clock.now = 100.0
    spoken.voice.beat()
    assert len(spoken.lines) == 2, "nothing is done any more"


def test_a_long_command_is_heard_while_it_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(voice, "BEAT_SECONDS", 0.001)
    heard = threading.Event()
    spoken = Voice(Console(file=io.StringIO()))
    monkeypatch.setattr(spoken.console, "print", lambda *_, **__: heard.set())
    with spoken.beating(), spoken.doing("reading all of the output"):
        assert heard.wait(30)
    assert not [thread for thread in threading.enumerate() if thread.name.endswith("(_beat)")]


def test_at_a_terminal_it_stands_in_the_live_display(clock: Clock) -> None:
    spoken = Spoken(clock, terminal=True)
    waits = Waiting(spoken.voice, clock=clock, sleep=clock.sleep)
    with spoken.voice.doing("deploying"):
        waits.until("a-g1", lambda: Look(clock.now > 20 or None, "4 of 9", clock.now), pause=1)
        assert spoken.voice._status is not None
        assert spoken.voice._status.status == "waiting for a-g1: 4 of 9, 20 s"


def test_an_entry_is_read_whatever_the_process_is_called(tmp_path: Path) -> None:
    program = tmp_path / "a) Z (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as odd:
        seen = process_table.entry(odd.pid)
        odd.kill()
    assert seen is not None
    assert (seen.pid, seen.parent, seen.session) == (odd.pid, os.getpid(), os.getsid(0))
    assert process_table.entry(odd.pid) is None


def test_the_cpu_time_of_a_tree_is_that_of_all_in_it() -> None:
    table = {
        1: Entry(1, 0, 1, "S", 10, 1.0),
        2: Entry(2, 1, 1, "R", 20, 2.0),
        3: Entry(3, 2, 3, "R", 30, 4.0),
        4: Entry(4, 3, 3, "R", 40, 16.0),
        9: Entry(9, 0, 9, "R", 90, 8.0),
    }
    assert watched.cpu([Watched("one", (2,)), Watched("two", (7,))], table) == {
        (2, 20): 2.0,
        (3, 30): 4.0,
        (4, 40): 16.0,
    }
    assert [entry.pid for entry in process_table.trees(table, (1, 3))] == [1, 3, 4, 2]


def test_a_log_is_quoted_by_its_last_error_else_by_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert watched.last_line(log) == ""
    log.write_text("x" * 70_000 + "\nfirst\n\nlast \n")
    assert watched.last_line(log) == "last"
    log.write_text("one\njava.lang.IllegalStateException: no\n at x\n")
    assert watched.last_line(log) == "java.lang.IllegalStateException: no"
