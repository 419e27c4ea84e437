"""Why something ended, in one line: found in what Python, Java and Spark print when they fail."""

from __future__ import annotations

import re
import traceback
from itertools import dropwhile

from rewind.core.errors import RewindError

LONGEST_CAUSE = 500
LONGEST_REST = 4_000
"""Characters that are kept of what was printed: the last ones, since a traceback ends with its cause."""
CUT = "…"
NOTHING = "it left no output"

_TRACEBACK = "Traceback (most recent call last):"
_CAUSED = "Caused by: "
_OURS = re.compile(r"^(?:.* )?ERROR \[[^\]]*\] ", re.MULTILINE)
"""Head of the line by which `steps.base.recording.run` tells of an error."""
_DIRECTLY = "\nThe above exception was the direct cause of the following exception:\n"
_MEANWHILE = "\nDuring handling of the above exception, another exception occurred:\n"
_WRAPPERS = (
    re.compile(r"^py4j\.protocol\.Py4JJavaError: An error occurred while calling .*\n: "),
    re.compile(r'^Exception in thread "[^"]*" '),
    re.compile(r"^[\s\S]*? terminated with exception: "),
    # Host and executor stand in the last brackets before the exception of the task.
    re.compile(r"^.*\bLost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): "),
)
"""What stands before the exception that matters."""
_PACKAGE = re.compile(r"^(?:[\w$]+\.)+(?=[A-Z][\w$]*(?::|$))")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+;?\s*$")
_FRAME = re.compile(
    r'File "(?:[^"\n]*/)?pipelines/[^/"\n]+/([^/"\n]+)", line (\d+)[^\n]*(?:\n    +(?![\s~^]*\n)(\S[^\n]*))?'
)
_CALL_SITE = re.compile(r"^(?:\S*/)?pipelines/[^/\s]+/([^/\s:]+\.py):(\d+)$", re.MULTILINE)
_JAVA_FRAME = re.compile(r"^\s+(at |\.\.\. )")


def cause(text: str) -> str:
    """Return in one line why something ended: exception, message, and where in the pipeline's own code.

    Args:
        text: What it printed: a traceback of Python, a stack trace of Java, an error of Spark, or lines of a log.
    """
    heads = list(_OURS.finditer(text))
    body = text[heads[-1].end() :] if heads else text
    if not body.strip():
        return NOTHING
    block = _root(body)
    # A line of ours is no traceback: it says by itself what it is, whatever it quotes.
    plain = bool(heads) and not body.startswith(_TRACEBACK)
    innermost = body if plain else _innermost(block) or _last(body)
    told, where = _shortened(_unwrapped(innermost)), _users_line(block) or _users_line(body)
    return f"{told} ({where})" if where else told


def of_error(error: BaseException) -> str:
    """Return in one line why an error was raised; one of ours says so by itself."""
    if isinstance(error, RewindError):
        return f"{type(error).__name__}: {error}"
    return cause("".join(traceback.format_exception(error)))


def told(text: str, source: str = "") -> str:
    """Return the cause in the first line, then what it was found in, the end of it when it is long.

    Args:
        text: What was printed.
        source: Where that is kept.
    """
    heads = list(_OURS.finditer(text))
    rest = text[heads[-1].start() :].strip() if heads else text.strip()
    if len(rest) > LONGEST_REST:
        rest = CUT + rest[-LONGEST_REST:]
    return "\n".join(filter(None, (cause(text), source, rest)))


def headline(kept: str | None) -> str:
    """Return the cause of what `told` made; what an older release wrote is cut."""
    return (kept or "").partition("\n")[0][:LONGEST_CAUSE]


def _root(text: str) -> str:
    """Return of a chain of tracebacks the one that the last was raised from, on purpose."""
    return text.rpartition(_MEANWHILE)[2].partition(_DIRECTLY)[0]


def _innermost(text: str) -> str:
    """Return the text from the exception on that caused all others; empty when none is seen."""
    python, java = text.rfind(_TRACEBACK), text.rfind(_CAUSED)
    if java > python:
        return text[java + len(_CAUSED) :]
    frames = text[python + len(_TRACEBACK) :].splitlines() if python >= 0 else []
    return "\n".join(dropwhile(lambda line: not line or line[0].isspace(), frames))


def _last(text: str) -> str:
    """Return what a process said last: the error that its JVM died of, or its last line."""
    died = text.rfind("Exception in thread ")
    lines = [line for line in text.splitlines() if line.strip() and not _JAVA_FRAME.match(line)]
    return text[died:] if died >= 0 else "\n".join(lines[-1:])


def _unwrapped(text: str) -> str:
    """Return the line that names the exception, without what is wrapped around it."""
    for wrapper in _WRAPPERS:
        text = wrapper.sub("", text, count=1)
    first, _, others = text.strip().partition("\n")
    # The message of some exceptions begins on a line of its own.
    return f"{first} {others.strip().partition(chr(10))[0]}" if first.endswith(":") else first


def _shortened(line: str) -> str:
    line = " ".join(_SQLSTATE.sub("", _PACKAGE.sub("", line)).split())
    return line if len(line) <= LONGEST_CAUSE else line[: LONGEST_CAUSE - 1] + CUT


def _users_line(text: str) -> str:
    frames = _FRAME.findall(text)
    if frames:
        file, line, source = frames[-1]
        return f"{file} line {line}{f': {source.strip()}' if source else ''}"
    sites = _CALL_SITE.findall(text)
    return f"{sites[0][0]} line {sites[0][1]}" if sites else ""
