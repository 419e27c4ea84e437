"""Where planted faults run: a guard that is missing may delete, kill, or talk to whatever its test can reach.

So nothing of the machine can be reached: the disk is read-only but for the copy and a folder for temporary files, and
no process and no port outside is there. Where this cannot be had, no fault is planted.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

NAMESPACES = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--net",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
WRITABLE = "REWIND_MUTANTS_WRITABLE"
"""Folders, joined by colons, that a contained process may write to."""

_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, _MS_BIND = -100, 0x8000, 1, 4096
_MOUNT_SETATTR = 442
"""Number of the call, which the C library does not offer everywhere; the same on all architectures."""
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


class NotContainedError(Exception):
    """This machine offers no way to contain a fault."""


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs another one within namespaces of its own."""
    return [*NAMESPACES, *arguments]


def environment(copied: Path, temporary: Path) -> dict[str, str]:
    """Return the environment of a contained process that works in a copy."""
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        WRITABLE: f"{copied}:{temporary}",
        "TMPDIR": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
        "SPARK_LOCAL_DIRS": str(temporary),
    }


def check() -> None:
    """Check that a fault can be contained.

    Raises:
        NotContainedError: It cannot.
    """
    here = Path(__file__).resolve().parents[2]
    tried = subprocess.run(
        command([sys.executable, "-m", "tests.mutants.contained"]),
        cwd=here, env=os.environ | {WRITABLE: ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode != 0:
        raise NotContainedError(
            f"mutants: faults cannot be contained here ({tried.stderr.strip()[-200:]}). "
            "They need user namespaces (`unshare` of util-linux, Linux 5.12): run this where they are allowed"
        )


def enter(given: Mapping[str, str] = os.environ) -> None:
    """Make the disk read-only, but for some folders, and bring up the loopback of the namespaces that this runs in.

    Raises:
        OSError: It cannot be done, or this runs in no namespaces of its own.
    """
    if os.getpid() != 1 or Path("/proc/self/uid_map").read_text().split()[2] != "1":
        raise OSError("not in namespaces of its own")
    folders = [folder for folder in given[WRITABLE].split(":") if folder]
    libc = ctypes.CDLL(None, use_errno=True)
    for folder in folders:
        _called(libc.mount(folder.encode(), folder.encode(), None, _MS_BIND, None), f"bind {folder}")
    _set(libc, "/", _AT_RECURSIVE, _MOUNT_ATTR_RDONLY, 0)
    for folder in folders:
        _set(libc, folder, 0, 0, _MOUNT_ATTR_RDONLY)
    # Locks between processes live there.
    _called(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, None), "/dev/shm")
    _loopback_up()


def _set(libc: ctypes.CDLL, path: str, flags: int, on: int, off: int) -> None:
    asked = struct.pack("QQQQ", on, off, 0, 0)
    _called(libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, asked, len(asked)), f"read-only {path}")


def _called(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


if __name__ == "__main__":
    enter()
