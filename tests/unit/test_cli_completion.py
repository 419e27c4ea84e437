"""The shell's completion, and what every command has in common: `--json` and its exit codes in the help."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rewind.cli import completion, exit_codes, main
from rewind.core import errors

WITHOUT_VALUE = {"/serve-pointer", "/completion", "/stack/logs", "/demo", "/plans", "/stack", ""}
"""Commands that answer with a stream of text, or only hold others."""


def leaves():
    return dict(completion._parsers(main.parser(), ""))


def completed(*words):
    line = " ".join(f"'{word}'" for word in ("rewind", *words))
    program = f"""
{completion.script(main.parser())}
COMP_WORDS=({line})
COMP_CWORD={len(words)}
_rewind
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run([shutil.which("bash"), "-euc", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_commands_are_completed():
    assert completed("st") == ["status", "start", "stack"]
    assert completed("plans", "") == ["show", "--help"]
    assert completed("stack", "lo") == ["logs"]
    assert completed("completion", "") == ["bash", "zsh", "--help"]


def test_options_are_completed_wherever_values_stand_before():
    assert completed("start", "visits_converter", "--from", "P1D", "--app") == ["--apply-plan"]
    assert completed("rollback", "visits_converter", "--no-d") == ["--no-dry-run"]
    assert completed("approve", "rw-1", "--re") == ["--reject", "--reason"]


def test_choices_are_completed_after_their_option():
    assert completed("start", "visits_converter", "--on-difference", "") == ["tell", "roll_back"]
    assert completed("plan", "visits_converter", "--repair-into", "b") == ["beside"]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_command_prints_the_script(shell, capsys):
    assert main.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "complete -o default -F _rewind rewind" in text
    assert ("bashcompinit" in text) == (shell == "zsh")


def test_all_commands_that_answer_with_a_value_do_so_as_json():
    for path, parser in leaves().items():
        assert ("--json" in parser.format_help()) == (path not in WITHOUT_VALUE), path


def test_every_help_tells_every_exit_code():
    codes = set(exit_codes.known())
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RewindError)]
    assert {kind.exit_code for kind in kinds} <= codes
    for path, parser in leaves().items():
        _, _, told = parser.format_help().partition("exit codes:")
        assert {int(code) for code in re.findall(r"^ +(\d+)  \S", told, re.MULTILINE)} == codes, path


def test_what_an_exit_code_means_is_the_words_of_its_error():
    assert exit_codes.known()[64] == "the request cannot be carried out as asked, and nothing has been changed"
    assert exit_codes.known()[75].startswith("the world may answer otherwise in a moment")


def test_no_command_prints_json_by_itself():
    """One place prints it: there whole numbers stay exact and times have their zone."""
    for path in sorted(Path(completion.__file__).parent.glob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        dumps = [node for node in calls if getattr(node.func, "attr", "") == "dumps"]
        assert not dumps or path.name in {"output.py", "pointer_server.py"}, path.name


def test_completion_holds_all_words_so_that_tab_starts_no_python():
    assert "python" not in completion.script(main.parser())
    assert json.dumps(completion.script(main.parser())).isascii()
