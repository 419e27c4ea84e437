"""The README and the runbooks: each command in them is one that there is, and runs where it needs no Airflow or broker.

Airflow is a stand-in here: what is held is that a command parses, and does what it says to the registry.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from rewind.cli import answer, context, main, planning
from rewind.core.offsets import OffsetRange
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log
from rewind.registry.mirrors.mirror_log import Commit
from tests.support import installed
from tests.support.installed import LIVE, REWIND_ID, FakeAirflow

PROJECT = Path(__file__).resolve().parents[2]
RUNBOOKS = sorted((PROJECT / "docs").glob("*.md"))
TEXTS = [PROJECT / "README.md", *RUNBOOKS]
PARTS = ("**You see**", "**Why", "**Do", "**It worked when**")
NO_RUNBOOK = {"README.md", "limits.md", "logic.md", "metrics.md", "performance.md", "values.md"}
NO_RUNBOOK |= {"deploy-for-a-team.md", "operate.md", "pipeline-yaml.md", "recover.md", "verdict.md"}
FOR_GOOD = {"stack", "demo", "serve-pointer"}
"""Commands that start processes or serve until they are ended."""
STANDS_FOR = {
    "<id>": REWIND_ID,
    "<rewind id>": REWIND_ID,
    "<plan id>": installed.plan().id,
    "<job id>": LIVE,
    "<topic>": "visits",
    "<pipeline>": "visits_converter",
    "<name>": "visits_converter",
}


def pieces(text):
    """Return the lines of code blocks, without comments, and what stands between backticks elsewhere."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = [line for line in prose.splitlines() if line.startswith("    ")]
    lines = [re.sub(r"\s{2,}#.*$", "", line).strip() for block in blocks for line in block.splitlines()]
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    return [*lines, *(re.sub(r"\s{2,}#.*$", "", line).strip() for line in indented), *spans]


def commands(text):
    found = [re.search(r"(?:^|\$\(|python -m )rewind ((?![=\"]).+?)(?:\)\"?)?$", piece) for piece in pieces(text)]
    return [match.group(1) for match in found if match]


def targets(text):
    return [piece.split()[1] for piece in pieces(text) if re.match(r"make [a-z]", piece)]


def arguments(command):
    for word, value in STANDS_FOR.items():
        command = command.replace(word, value)
    return shlex.split(command)


ALL = sorted({command for path in TEXTS for command in commands(path.read_text())})
RUN = [command for command in ALL if shlex.split(command)[0] not in FOR_GOOD and "--watch" not in command]


def test_there_are_commands_to_hold():
    assert len(ALL) > 50
    assert {"status", "deploy visits_converter --from earliest", "completion bash"} <= set(ALL)


@pytest.mark.parametrize("command", ALL)
def test_a_command_of_the_documents_can_be_read(command):
    assert callable(main.parser().parse_args(arguments(command)).func)


def test_make_targets_of_the_documents_are_there():
    there = set(re.findall(r"^([a-z]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    asked = {target for path in TEXTS for target in targets(path.read_text())}
    assert {"demo", "test", "up", "down", "status"} <= asked
    assert asked <= there


def test_an_audit_of_packages_fails_where_it_could_look_at_nothing():
    """F24: without it, packages that no service knows are passed over and the audit ends green."""
    line = next(text for text in (PROJECT / "Makefile").read_text().splitlines() if "pip-audit " in text)
    assert {"--strict", "--require-hashes"} <= set(line.split())
    assert "$(wildcard requirements*.txt)" in line


def test_every_command_has_a_place_in_the_documents():
    known = {path.split("/")[1] for path in _paths() if path}
    assert known <= {shlex.split(command)[0] for command in ALL} | FOR_GOOD


def _paths():
    from rewind.cli import completion

    return dict(completion._parsers(main.parser(), ""))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    made = installed.seed(folder)
    commit = Commit(0, "id-1", {0: OffsetRange(0, 100)}, {0: 100}, {}, 10)
    with writing(made.registry_url) as connection:
        mirror_log.record(connection, "visits", commit)
    return folder


@pytest.fixture
def airflow(template, tmp_path, monkeypatch):
    folder = tmp_path / "installed"
    shutil.copytree(template, folder)
    for name, value in installed.environment(folder).items():
        monkeypatch.setenv(name, value)
    made = FakeAirflow(context.settings())
    monkeypatch.setattr(context, "airflow_api", lambda: made)
    monkeypatch.setattr(answer, "LOOK_SECONDS", 0)
    monkeypatch.setattr(planning, "LOOK_SECONDS", 0)
    # A person who says yes.
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    return made


@pytest.mark.parametrize("command", RUN)
def test_a_command_of_the_documents_runs(command, airflow, capsys):
    assert main.main(arguments(command)) == 0, capsys.readouterr().err


@pytest.mark.parametrize("path", [p for p in RUNBOOKS if p.name not in NO_RUNBOOK], ids=lambda path: path.name)
def test_a_runbook_says_what_why_do_and_how_to_see(path):
    text = path.read_text()
    places = [text.find(part) for part in PARTS]
    assert -1 not in places
    assert places == sorted(places)


def test_every_runbook_is_in_the_index_and_every_link_leads_somewhere():
    index = (PROJECT / "docs" / "README.md").read_text()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {path.name for path in RUNBOOKS} - {"README.md"}
    for path in RUNBOOKS:
        for name in re.findall(r"\]\(([\w-]+\.md)\)", path.read_text()):
            assert (path.parent / name).is_file(), f"{path.name}: {name}"
