"""What set-up shows: a line that moves at a terminal, lines elsewhere, and a log without control characters."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from provision import environment, progress
from provision.progress import Board


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the board sees, to be moved."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


STEPS = ["uv", "packages", "jars for Kafka", "archive"]


def test_a_terminal_shows_what_is_done_how_far_and_what_is_left(
    clock: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    board = Board(STEPS, stream, tmp_path / "setup.log")
    with board.step("uv", "fetching the pinned release"):
        clock[0] += 5
    with board.step("packages", "resolving"):
        clock[0] += 7
        board.show("packages", "12 of 24 large ones, building pyspark", 0.5)
        board.draw()

    shown = "20 % 12 s | packages: 12 of 24 large ones, building pyspark | left: jars for Kafka, archive"
    assert stream.getvalue().endswith(f"\r\x1b[K{shown}\r\x1b[Ksetup: packages: done in 7 s\n")


def test_a_terminals_line_is_never_wider_than_it(
    clock: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    Board(STEPS, stream, tmp_path / "setup.log").draw()

    assert stream.getvalue() == "\r\x1b[K0 % 0 s | left: uv,"


def test_without_a_terminal_there_is_a_line_every_ten_seconds(clock: list[float], tmp_path: Path) -> None:
    stream = io.StringIO()
    board = Board(["archive"], stream, tmp_path / "setup.log")
    with board.step("archive", "starting Spark"):
        for _ in range(100):
            clock[0] += 0.2
            board.draw()

    expected = [
        "archive: starting Spark",
        "0 % 10 s | archive: starting Spark",
        "0 % 20 s | archive: starting Spark",
        "archive: done in 20 s",
    ]
    assert [line.removeprefix("setup: ") for line in stream.getvalue().splitlines()] == expected
    assert [line.partition(" ")[2] for line in (tmp_path / "setup.log").read_text().splitlines()] == expected


def test_the_log_of_a_terminals_set_up_has_no_control_characters(clock: list[float], tmp_path: Path) -> None:
    board = Board(["archive"], Terminal(), tmp_path / "logs" / "setup.log")
    with board.step("archive", "starting Spark"):
        clock[0] += 11
        board.draw()

    lines = (tmp_path / "logs" / "setup.log").read_text().splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line.partition(" ")[2] for line in lines] == [
        "archive: starting Spark",
        "0 % 11 s | archive: starting Spark",
        "archive: done in 11 s",
    ]


def test_a_step_that_failed_is_not_said_to_be_done(clock: list[float], tmp_path: Path) -> None:
    stream = io.StringIO()
    board = Board(["archive"], stream, tmp_path / "setup.log")
    with pytest.raises(OSError, match="full"), board.step("archive", "starting Spark"):
        raise OSError("full")

    assert stream.getvalue() == "setup: archive: starting Spark\n"


def test_uvs_lines_say_how_far_it_is(tmp_path: Path) -> None:
    built: list[tuple[str, str]] = []
    board = Board(["packages"], io.StringIO(), tmp_path / "setup.log")
    watch = environment.Watch(board, lambda *found: built.append(found))
    for line in (
        "Resolved 181 packages in 2s",
        "Downloading numpy (16.1MiB)",
        "Downloaded numpy",
        "Building pyspark==4.2.0",
    ):
        watch.line(line)

    assert (watch.begun, watch.done, watch.doing) == ({"numpy", "pyspark"}, {"numpy"}, "building pyspark")
    assert built == [("pyspark", "4.2.0")]


def package(folder: Path, name: str, record: str | None) -> Path:
    info = folder / "lib" / "python3.11" / "site-packages" / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (info / "INSTALLER").write_text("uv")
    if record is not None:
        (info / "RECORD").write_text(record)
    return info


def test_a_package_that_was_installed_in_part_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "VENV", tmp_path)
    complete = package(tmp_path, "complete", "complete-1.dist-info/INSTALLER,,\n")
    unfinished = package(tmp_path, "unfinished", "unfinished-1.dist-info/METADATA,,\n")
    lacking = package(tmp_path, "lacking", "lacking-1.dist-info/INSTALLER,,\nlacking/__init__.py,,\n")
    unrecorded = package(tmp_path, "unrecorded", None)

    environment.mend()

    assert [info.exists() for info in (complete, unfinished, lacking, unrecorded)] == [True, False, False, False]


def test_a_source_that_was_fetched_and_not_built_is_found(tmp_path: Path) -> None:
    lock, cache = tmp_path / "lock.txt", tmp_path / "cache" / "sdists-v11" / "pypi"
    entries = [
        f"{name}==1.0 \\\n    --hash=sha256:a{name} \\\n    --hash=sha256:b\n" for name in ("one", "two", "three")
    ]
    lock.write_text("# by make lock\n" + "    # via somebody\n".join(entries))
    for name, wheel in (("one", ""), ("two", "1/two.whl"), ("three", "three.whl")):
        made = cache / name / "1.0" / "id"
        (made / "src").mkdir(parents=True)
        if wheel:
            (made / wheel).parent.mkdir(exist_ok=True)
            (made / wheel).touch()

    assert environment.unbuilt(lock, tmp_path / "cache") == [entries[0]]
