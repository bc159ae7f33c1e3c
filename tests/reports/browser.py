"""A real Chromium, spoken to through a pipe in its DevTools protocol: no driver, no dependency.

with Browser() as page:
    page.open(path)
    page.press("Tab")
    assert page.value("document.activeElement.tagName") == "A"
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 30
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36}
KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
TEXT = {"Enter": "\r", " ": " "}


@cache
def chromium() -> str | None:
    """The first that runs; some systems have a placeholder under that name that does not."""
    for path in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return path
    return None


class Browser:
    """One tab. `problems` are its console errors and exceptions, `requests` what it asked for."""

    def __enter__(self) -> Browser:
        path = chromium()
        assert path is not None
        self.folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        words = ["--headless=new", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        words += ["--disable-dev-shm-usage", "--disable-background-networking", "--hide-scrollbars"]
        words += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its own as root
        words += [f"--user-data-dir={self.folder.name}", "about:blank"]
        to_read, self.to_write = os.pipe()
        self.to_hear, to_say = os.pipe()
        # Chromium listens at 3 and answers at 4; the shell puts our ends there.
        move = f'exec "$0" "$@" 3<&{to_read} 4>&{to_say}'
        self.process = subprocess.Popen(
            ["bash", "-c", move, path, *words],
            pass_fds=(to_read, to_say),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a group of its own, so that all of it can be ended
        )
        os.close(to_read)
        os.close(to_say)
        self.number, self.heard, self.session = 0, b"", None
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.events: list[str] = []
        try:
            (target, *_) = [
                info for info in self.send("Target.getTargets")["targetInfos"] if info["type"] == "page"
            ]
            attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            self.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.send(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.to_write, self.to_hear):  # Chromium ends when its pipe does
            os.close(pipe)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        with suppress(ProcessLookupError):  # what is left of it
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=10)
        self.folder.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._hear()
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _hear(self) -> dict[str, Any]:
        ends = time.monotonic() + SECONDS
        while b"\0" not in self.heard:
            ready, _, _ = select.select([self.to_hear], [], [], max(0, ends - time.monotonic()))
            assert ready, f"expected an answer of Chromium in {SECONDS} s, found none"
            data = os.read(self.to_hear, 1 << 20)
            assert data, "expected Chromium to go on, found that it ended"
            self.heard += data
        message, _, self.heard = self.heard.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, about = event["method"], event["params"]
        self.events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(about["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.problems.append(json.dumps(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.problems.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"a dialog: {about['message']}")
            self.send("Page.handleJavaScriptDialog", accept=True)

    def open(self, path: Path, anchor: str = "", width: int = 1280, height: int = 900) -> None:
        self.resize(width, height)
        for url in ("about:blank", path.resolve().as_uri() + anchor):  # an anchor alone loads nothing
            self.events.clear()
            self.send("Page.navigate", url=url)
            while "Page.loadEventFired" not in self.events:
                self._note(self._hear())

    def resize(self, width: int, height: int = 900) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, once its promises and a repaint are done."""
        code = f"(async () => {{ await new Promise(requestAnimationFrame); return ({expression}); }})()"
        found = self.send("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Until an expression holds."""
        ends = time.monotonic() + SECONDS
        while not self.value(expression):
            assert time.monotonic() < ends, f"expected {expression} in {SECONDS} s"

    def press(self, *keys: str, shift: bool = False) -> None:
        for key in keys:
            about = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            about |= {"modifiers": 8 if shift else 0}
            text = {"text": TEXT[key]} if key in TEXT else {}
            self.send(
                "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about, **text
            )
            self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def point(self, selector: str) -> None:
        """Move the mouse onto an element."""
        self._mouse("mouseMoved", selector)

    def click(self, selector: str) -> None:
        self._mouse("mouseMoved", selector)
        self._mouse("mousePressed", selector, button="left", clickCount=1)
        self._mouse("mouseReleased", selector, button="left", clickCount=1)

    def _mouse(self, kind: str, selector: str, **about: Any) -> None:
        found = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{found}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.value(
            f"(box => [box.x + box.width / 2, box.y + box.height / 2])({found}.getBoundingClientRect())"
        )
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **about)

    def media(self, kind: str = "", **features: str) -> None:
        """Such as media("print") or media(prefers_color_scheme="dark")."""
        listed = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.send("Emulation.setEmulatedMedia", media=kind, features=listed)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        found = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
