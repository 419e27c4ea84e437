"""Which calls no registry transaction may hold: to Spark, to Kafka, to a file system, to another process.

Only what is listed here is stopped. Python itself needs files at any moment (modules, their lines in a traceback), and
a lease asks the kernel for one process at a time (ADR 0033): those pass.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

AUDITED = {
    *("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"),
    *("os.truncate", "os.chmod", "os.utime", "fcntl.flock", "fcntl.lockf", "glob.glob", "shutil.rmtree"),
    *("shutil.copyfile", "shutil.copytree", "shutil.move", "tempfile.mkstemp", "tempfile.mkdtemp"),
    *("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.posix_spawn", "os.system"),
}
"""Events that Python itself tells of, whoever calls: https://docs.python.org/3/library/audit_events.html."""
UNAUDITED = ("stat", "lstat", "access", "readlink", "statvfs")
"""Functions of `os` that tell of no event."""
KAFKA = (
    ("kafka", "KafkaAdminClient"),
    ("kafka", "KafkaConsumer"),
    ("kafka", "KafkaProducer"),
    ("rewind.runtime.kafka.broker", "Broker"),
)
"""Classes whose every public method, and their making, asks the broker."""
SPARK = (("py4j.java_gateway", "GatewayConnection"), ("py4j.clientserver", "ClientServerConnection"))
"""Classes whose `send_command` is every call into a JVM."""
FORGET = "m\n"
"""How a command begins that lets the JVM forget an object: Python's own clean-up, at any moment."""
CONNECT_WHEN_MADE = ("kafka",)
"""Modules of those that ask the broker as soon as one is made."""

_CODE = (".py", ".pyc", ".so")
_IMPORTS = ("<frozen importlib", "<frozen zipimport")
_READS_CODE = {"linecache", "traceback", "inspect", "tokenize", "zipimport", "pkgutil"}
_OF_A_PROCESS = re.compile(r"/proc/(\d+/stat|sys/kernel/random/boot_id)")
_PYTHON = tuple({str(Path(place).resolve()) for place in (sys.prefix, sys.base_prefix)} | {sys.prefix})


def watch(told: Callable[[str], None], is_held: Callable[[], bool], fakes: Sequence[tuple[str, str]] = ()) -> None:
    """Call `told` with the name of each slow call that is about to be made while something is held; for ever.

    Args:
        told: Raises what makes the call fail.
        is_held: Whether this thread holds what no slow call may be made in; asked at each call.
        fakes: Further classes, by module and name, whose calls are as slow as those of `KAFKA`.
    """

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in AUDITED and is_held() and not _harmless(arguments[0] if arguments else None):
            told(f"{event} {arguments[0] if arguments else ''}".strip())

    sys.addaudithook(audit)
    for name in UNAUDITED:
        _stop(os, name, lambda arguments: not _harmless(arguments[0]), told, is_held)
    for module, made in (*KAFKA, *fakes):
        found = getattr(importlib.import_module(module), made)
        for name in _asking(found, module in CONNECT_WHEN_MADE):
            _stop(found, name, lambda _: True, told, is_held)
    for module, made in SPARK:
        found = getattr(importlib.import_module(module), made)
        _stop(found, "send_command", lambda arguments: not arguments[1].startswith(FORGET), told, is_held)


def _asking(found: type, made: bool) -> Iterator[str]:
    """Return the names of the methods of a class, its own and inherited, that ask a broker."""
    yield from ["__init__"] * made
    for name in sorted({name for base in found.__mro__ for name in vars(base)}):
        if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(found, name)):
            yield name


def _stop(
    owner: Any, name: str, slow: Callable[[Any], bool], told: Callable[[str], None], is_held: Callable[[], bool]
) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def watched(*arguments: Any, **named: Any) -> Any:
        if is_held() and slow(arguments):
            told(f"{owner.__name__}.{name} {_shown(owner, arguments)}".strip())
        return real(*arguments, **named)

    setattr(owner, name, watched)
    # What Python says of a function of `os` holds for what stands in its place.
    for said in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if real in said:
            said.add(watched)


def _shown(owner: Any, arguments: tuple[Any, ...]) -> str:
    shown = arguments[1:2] if isinstance(owner, type) else arguments[:1]
    return " ".join(str(one).partition("\n")[0] for one in shown)


def _harmless(path: Any) -> bool:
    """Return whether a file may be touched at any moment: it is open already, code, Python's, or of the kernel."""
    if not isinstance(path, str | bytes | os.PathLike):
        # A descriptor, or what has no path at all and is slow whatever it is.
        return isinstance(path, int)
    text = os.fsdecode(path)
    if text.endswith(_CODE) or text.startswith(_PYTHON) or _OF_A_PROCESS.fullmatch(text):
        return True
    return _reading_code()


def _reading_code() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTS) or frame.f_globals.get("__name__") in _READS_CODE:
            return True
        frame = frame.f_back
    return False
