"""A headless Chromium, driven over its own DevTools protocol: no other program is needed."""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ANSWER_SECONDS = 30.0


class Page:
    """One tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol and return its result; errors of the page seen meanwhile are kept."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv(timeout=ANSWER_SECONDS))
            if told.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(told["params"]["exceptionDetails"]))
            if told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
                self.errors.append(str(told["params"]["entry"]))
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def until(self, expression: str, seconds: float = 15.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.run(f"(() => {{ try {{ return !!({expression}); }} catch {{ return false; }} }})()"):
                return
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {expression}; page says {self.text()[:2000]}")

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def tabs(self) -> list[str]:
        """Return the addresses of all tabs."""
        return [tab["url"] for tab in self._tabs()]

    def close(self, address: str) -> None:
        """Close the tab of an address, and come to the front, without which a page stands still."""
        for tab in self._tabs():
            if tab["url"] == address:
                self.call("Target.closeTarget", targetId=tab["targetId"])
        self.call("Page.bringToFront")

    def _tabs(self) -> list[dict[str, Any]]:
        return [tab for tab in self.call("Target.getTargets")["targetInfos"] if tab["type"] == "page"]

    def press_mouse(self, element: str) -> None:
        """Press the mouse's button in the middle of the element that an expression gives, once it stands still.

        The element may lie in a frame of the page. A press, unlike a call of `click()`, may open a tab.
        """
        middle = (
            f"(() => {{ const e = {element}; e.scrollIntoView({{block: 'center', behavior: 'instant'}}); "
            "const r = e.getBoundingClientRect(); "
            "const f = e.ownerDocument.defaultView.frameElement?.getBoundingClientRect(); "
            "return [r.x + r.width / 2 + (f?.x ?? 0), r.y + r.height / 2 + (f?.y ?? 0)]; })()"
        )
        x, y = self.run(middle)
        while (moved := self.run(f"new Promise((done) => setTimeout(() => done({middle}), 100))")) != [x, y]:
            x, y = moved
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, **more: Any) -> None:
        """Press a key, as a person does."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def look(self, width: int, scheme: str, height: int = 900) -> None:
        """Take a size, and a preference for `light` or `dark`."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def cookie(self, url: str, name: str, value: str) -> None:
        self.call("Network.setCookie", url=url, name=name, value=value)

    def shoot(self, path: Path) -> None:
        """Keep a picture of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Run a Chromium of its own, with a profile in a folder, and give its tab."""
    assert PROGRAM, "no Chromium is installed: apt-get install chromium"
    profile = folder / "profile"
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")
    command = [PROGRAM, *flags, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    with (folder / "chromium.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        port = _port(folder / "chromium.log", process)
        with connect(_tab(port), max_size=None, proxy=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(20)


def _port(log: Path, process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"ws://127\.0\.0\.1:(\d+)/", log.read_text()):
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError(f"Chromium did not start: {log.read_text()[-2000:]}")


def _tab(port: int) -> str:
    from urllib.request import ProxyHandler, build_opener

    with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
        tabs = json.loads(answer.read())
    return next(str(tab["webSocketDebuggerUrl"]) for tab in tabs if tab["type"] == "page")
