"""Every command refuses an option that it does not know, a wrong type and an empty text, before it looks at anything.

The commands and their options are those of the parser, so that a new one is held too.
"""

from __future__ import annotations

import argparse

import pytest

from rewind.cli import context, main


def leaves(parser, path=()):
    """Return each command with its own parser."""
    below = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        return [(path, parser)]
    return [leaf for name, sub in below[0].items() for leaf in leaves(sub, (*path, name))]


COMMANDS = [pytest.param(path, parser, id=" ".join(path)) for path, parser in leaves(main.parser())]


def value(action):
    if action.choices:
        return str(next(iter(action.choices)))
    return "1" if action.type is int else "x"


def least(path, parser):
    """Return the shortest arguments that a command takes."""
    words = list(path)
    for action in parser._actions:
        if action.option_strings and action.required:
            words += [action.option_strings[0], value(action)]
        if not action.option_strings and action.nargs != "?":
            words.append(value(action))
    return words


def valued(parser):
    """Return the options that take a value."""
    return [a for a in parser._actions if a.option_strings and a.nargs != 0]


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    """No command may come as far as to ask for its installation or for Airflow."""

    def reached(*_):
        raise AssertionError("the command went on")

    for name in ("settings", "airflow_api", "broker"):
        monkeypatch.setattr(context, name, reached)


def unreadable(capsys, arguments):
    """Return the last line that the parser says when it cannot read the arguments."""
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def refused(capsys, arguments):
    """Return the one line of a refusal."""
    assert main.main(arguments) == 64
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("error: ")


@pytest.mark.parametrize(("path", "parser"), COMMANDS)
@pytest.mark.shows("truth")
def test_an_option_that_is_not_known_is_refused_with_the_nearest(capsys, path, parser):
    assert "unrecognized arguments: --nonsense" in unreadable(capsys, [*least(path, parser), "--nonsense", "1"])
    for flag in (flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")):
        said = unreadable(capsys, [*least(path, parser), f"{flag}x"])
        assert f'unrecognized arguments: {flag}x. Did you mean "{flag}"? Known: --help' in said


@pytest.mark.parametrize(("path", "parser"), COMMANDS)
@pytest.mark.shows("truth")
def test_a_value_of_another_type_is_refused(capsys, path, parser):
    for action in valued(parser):
        if action.type or action.choices:
            said = unreadable(capsys, [*least(path, parser), action.option_strings[0], "[1"])
            assert f"argument {'/'.join(action.option_strings)}: invalid" in said


@pytest.mark.parametrize(("path", "parser"), COMMANDS)
@pytest.mark.parametrize("empty", ["", " ", "\n"])
@pytest.mark.shows("truth")
def test_an_empty_text_is_refused(capsys, path, parser, empty):
    base = least(path, parser)
    for action in valued(parser):
        flag = action.option_strings[0]
        if action.type or action.choices:
            unreadable(capsys, [*base, flag, empty])
        else:
            assert refused(capsys, [*base, flag, empty]) == f"{flag}: is empty. Give a value, or leave it out"
            assert refused(capsys, [*base, f"{flag}={empty}"]) == f"{flag}: is empty. Give a value, or leave it out"
    for action in parser._actions:
        if not action.option_strings and not action.choices:
            words = [empty if word == "x" else word for word in base] if action.nargs != "?" else [*base, empty]
            assert refused(capsys, words).startswith("arguments: is empty. Give a value, or leave it out")


INSTANT = "Write it with its zone, as 2025-09-04T07:00:00Z"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("deploy a --from yesterday", "from: 'yesterday' is no start. Write earliest, latest, group:NAME or "),
        ("deploy a --from 2014-01-01", "from: '2014-01-01' is no start. Write earliest, latest, group:NAME or "),
        ("plan a --from 2014-01-01", f"from: '2014-01-01' has no time zone. {INSTANT}"),
        ("start a --from 2014-01-01", f"from: '2014-01-01' has no time zone. {INSTANT}"),
        ("start a --to 2014-01-01T00:00:00", f"to: '2014-01-01T00:00:00' has no time zone. {INSTANT}"),
        (
            "plan a --to 2025-02-30T00:00:00Z",
            "to: '2025-02-30T00:00:00Z' is not an ISO-8601 timestamp (day is out of range for month)",
        ),
        (
            "plan a --to 2025-09-04T25:00:00Z",
            "to: '2025-09-04T25:00:00Z' is not an ISO-8601 timestamp (hour must be in 0..23)",
        ),
        (
            "plan a --from yesterday",
            "from: 'yesterday' is not a position. Write earliest, live, 2025-09-04T07:00:00Z, ",
        ),
        ("start a --observe P", "observe: 'P' is not an ISO-8601 duration. Write P9D, PT1H, PT90S or P1DT12H"),
        ("start a --compare-every PT", "compare_every: 'PT' is not an ISO-8601 duration. Write P9D, "),
        ("start a --apply-plan zz", "apply_plan: 'zz' is no such text. Give the id of a plan, as 0123456789ab"),
        ("rollback a --grace P1DT", "grace: 'P1DT' is not an ISO-8601 duration. Write P9D, "),
        ("rollback a --to a-r1", "to: 'a-r1' is no such text. Give the id of a job, as visits_converter-g1"),
        ("consumers a --replay-from 2014-01-01", f"replay_from: '2014-01-01' has no time zone. {INSTANT}"),
        (
            "consumers a --replay-from live",
            "replay_from: 'live' is not a position of a consumer group. Write earliest, ",
        ),
        ("consumers a --from-job ../a-g1", "from_job: '../a-g1' is no such text. Give the id of a job, "),
    ],
)
def test_a_bad_value_is_refused_in_one_line_before_airflow_is_asked(capsys, command, told):
    assert refused(capsys, command.split()).startswith(told)
