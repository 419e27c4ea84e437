"""Supervisors and a page on hosts of their own, over one registry, while drivers and hosts fail as drawn."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from rewind.core.errors import RetryError
from rewind.core.settings import Settings
from rewind.registry import database
from rewind.runtime.drivers import declared_dead
from tests.support.host_agent import FASTER, OWNER, Host


class Fleet:
    """Two hosts with a supervisor each and one with the page, over one registry; a driver on one of the first two."""

    def __init__(self, settings: Settings, folder: Path, seed: int) -> None:
        self.settings, self.folder, self.draw = settings, folder, random.Random(seed)
        self.boots = 0
        self.hosts = {name: self.up(name) for name in ("a", "b", "page")}
        self.looks = self.deaths = self.failures = self.starts = 0
        self.slowest = 0.0

    def up(self, name: str) -> Host:
        self.boots += 1
        return Host(name, f"boot-{self.boots}", self.folder, self.settings)

    def look(self, name: str) -> None:
        seen = self.hosts[name].asks("look")
        self.looks += 1
        self.failures += seen["failed"]
        assert self.failures <= self.deaths, f"{name} counted a failure of a driver that had not ended"
        self.starts += seen["started"]
        if seen["started"] and self.draw.random() < 0.7:
            self.alive()

    def views(self) -> dict[str, str]:
        return {name: host.asks("view") for name, host in self.hosts.items()}

    def until(self, shown: Callable[[dict[str, str]], bool], seconds: float) -> float:
        """Wait until the hosts show something, and return how long that took."""
        began = time.monotonic()
        while not shown(views := self.views()):
            assert time.monotonic() - began < seconds, views
            time.sleep(0.02)
        return time.monotonic() - began

    def dead(self) -> None:
        """Wait until all hosts show the driver as dead, or as about to be started again."""
        took = self.until(lambda views: set(views.values()) <= {"dead", "waiting"}, 2 * 60 / FASTER)
        self.slowest = max(self.slowest, took * FASTER)

    def alive(self) -> None:
        """Wait until all hosts show that it works."""
        self.until(lambda views: sorted(views.values()) == ["alive", *["elsewhere"] * (len(views) - 1)], 30)

    def where(self) -> str:
        return next(name for name, state in self.views().items() if state == "alive")

    def freeze(self, host: Host) -> None:
        """Freeze the driver of a host; not while it holds a file that nobody can take from it."""
        host.asks(f"signal {signal.SIGSTOP:d}")
        while self.settings.registry_url.startswith("sqlite") and not self.free():
            host.asks(f"signal {signal.SIGCONT:d}")
            time.sleep(self.draw.random() / 100)
            host.asks(f"signal {signal.SIGSTOP:d}")

    def free(self) -> bool:
        try:
            with database.writing(self.settings.registry_url, 200):
                return True
        except RetryError:
            return False

    def something_happens(self) -> str:
        name, did = self.where(), self.draw.choice(["nothing", "kill", "freeze", "cut", "vanish"])
        host = self.hosts[name]
        other = {"a": "b", "b": "a"}[name]
        if did == "kill":
            assert len(host.asks(f"signal {signal.SIGKILL:d}")) == 1
            self.deaths += 1
            # The other one may look first, and must wait for this one.
            self.look(other)
            self.dead()
        elif did in ("freeze", "cut"):
            self.freeze(host) if did == "freeze" else host.cut(off=True)
            self.look(self.draw.choice("ab"))
            self.dead()
            self.look(other)
            host.asks(f"signal {signal.SIGCONT:d}") if did == "freeze" else host.cut(off=False)
            self.alive()
        elif did == "vanish":
            host.vanish()
            self.deaths += 1
            del self.hosts[name]
            self.look(other)
            self.dead()
            with database.writing(self.settings.registry_url) as connection:
                token = declared_dead.held(connection, OWNER).token
            declared_dead.declare(self.settings, OWNER, token, "ann", "its host is gone", stopped=True)
            self.look(other)
            self.hosts[name] = self.up(name)
        return did

    def end(self) -> None:
        for host in self.hosts.values():
            host.vanish()

    def writers(self) -> list[tuple[float, float, int]]:
        """Return when each driver wrote first and last, and with which token, in order."""
        spans: dict[tuple[str, str, str], list[float]] = {}
        for line in (self.folder / "writes").read_text().splitlines():
            at, *who = line.split()
            spans.setdefault((who[0], who[1], who[2]), []).append(float(at))
        return sorted((min(at), max(at), int(token)) for (token, _, _), at in spans.items())
