"""Drives headless Chromium by its DevTools protocol over a pipe: a page is opened, typed into and asked."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.browser import CHROMIUM

ANSWER_S = 300.0


class Navigated(AssertionError):
    """The page that was asked has made room for another."""


class Page:
    """One tab. *complaints* are all errors and warnings that its console has shown."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._number, self._rest, self._session = to, back, 0, b"", ""
        self.complaints: list[str] = []
        self.urls: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of *method*; notes what is told meanwhile."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise Navigated(answer)
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript *expression* in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Its value as soon as it is true, in this page or in the one that it goes to."""
        end_s = time.monotonic() + ANSWER_S
        while time.monotonic() < end_s:
            with contextlib.suppress(Navigated):
                if found := self.ask(expression):
                    return found
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}; {self.complaints}")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def look(self, width: int, *, dark: bool, height: int = 1600) -> None:
        """The window is so wide, and its owner likes it light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            assert select.select([self._back], [], [], ANSWER_S)[0], "the browser does not answer"
            read = os.read(self._back, 1 << 20)
            assert read, "the browser is gone"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Any) -> None:
        method, found = event.get("method"), event.get("params", {})
        if method == "Log.entryAdded" and found["entry"]["level"] in ("error", "warning"):
            self.complaints.append(found["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(found["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(found["args"]))
        elif method == "Network.requestWillBeSent":
            self.urls.append(found["request"]["url"])


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """A tab of a new browser, which ends with the block."""
    assert CHROMIUM is not None
    there, to = os.pipe()
    back, here = os.pipe()

    def pipes() -> None:  # the browser reads from 3 and writes to 4
        read, write = os.dup(there), os.dup(here)
        os.dup2(read, 3)
        os.dup2(write, 4)

    process = subprocess.Popen(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(f"--user-data-dir={profile}", "--remote-debugging-pipe", "--hide-scrollbars", "about:blank"),
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        close_fds=False, preexec_fn=pipes,
    )  # fmt: skip
    os.close(there)
    os.close(here)
    try:
        page = Page(to, back)
        yield page
        with contextlib.suppress(AssertionError):
            page.call("Browser.close")
    finally:
        os.close(to)
        os.close(back)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
