"""A headless Chromium, driven over the DevTools protocol.

Debian's package `chromium` brings the program. What needs it stands beside the quick suite:
`.ci/run` runs it.
"""

import json
import os
import shutil
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, Final

import pytest
import trio
from trio_websocket import WebSocketConnection, open_websocket_url

CHROMIUM: Final = shutil.which("chromium")

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium here (Debian: chromium)"
)

FLAGS: Final = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-extensions", "--hide-scrollbars", "--mute-audio"),
    # Else a script that asks for the size of the window gets it before `look` has set it.
    *("--window-size=1280,1000", "--remote-debugging-port=0", "--lang=en-GB"),
)

LARGEST: Final = 64 << 20
"""Bytes of the largest message: a picture of a whole page."""

KEYS: Final = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}


class Browser:
    """One page of a browser."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection
        self._number = 0
        self._answers: dict[int, Any] = {}
        self._arrived = trio.lowlevel.ParkingLot()
        self._session: str | None = None
        self._loaded = 0
        self.complaints: list[str] = []
        """Errors and warnings of the console, and exceptions."""
        self.requested: list[str] = []
        """The addresses of all requests."""

    async def read(self) -> None:
        """Take what comes, until cancelled. Raises ``ConnectionClosed`` if the browser dies."""
        while True:
            message = json.loads(await self._connection.get_message())
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._note(message["method"], message["params"])
            self._arrived.unpark_all()

    def _note(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                texts = [str(each.get("value")) for each in params["args"]]
                self.complaints.append(" ".join([params["type"], *texts]))
            case "Log.entryAdded":
                entry = params["entry"]
                self.complaints.append(f"{entry['source']}: {entry['text']}")
            case "Page.loadEventFired":
                self._loaded += 1
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])
            case _:
                pass

    async def call(self, method: str, **params: Any) -> Any:
        """Return the result of a command."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        await self._connection.send_message(json.dumps(message))
        while number not in self._answers:
            await self._arrived.park()
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    async def attach(self) -> None:
        """Open a page, to which everything that follows belongs."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", flatten=True, **target)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            await self.call(f"{domain}.enable")

    async def visit(self, url: str) -> None:
        """Go to an address, and wait until the page is loaded."""
        loaded = self._loaded
        answer = await self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        await self._wait_for_load(loaded)

    async def reload(self) -> None:
        """Load the page anew."""
        loaded = self._loaded
        await self.call("Page.reload")
        await self._wait_for_load(loaded)

    async def _wait_for_load(self, before: int) -> None:
        while self._loaded == before:
            await self._arrived.park()

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        result = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression in the page is true, after any frame; return its value."""
        return await self.run(
            f"""(async () => {{
  for (;;) {{
    const value = ({script});
    if (value) return value;
    await new Promise((done) => setTimeout(done, 20));
  }}
}})()"""
        )

    async def look(
        self, *, width: int, height: int, dark: bool = False, still: bool = True, scale: float = 1
    ) -> None:
        """Set the size of the page, and what its reader prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=False,
        )  # fmt: skip
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": name, "value": value} for name, value in features.items()],
        )
        # Until it is drawn so.
        await self.run("new Promise((d) => requestAnimationFrame(() => requestAnimationFrame(d)))")

    async def press(self, key: str) -> None:
        """Press a key, and let go."""
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key],
                **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}),
            )  # fmt: skip

    async def write(self, text: str) -> None:
        """Write where the keyboard is."""
        await self.call("Input.insertText", text=text)

    async def accessible(self) -> list[tuple[str, str]]:
        """Return role and name of all that a screen reader finds."""
        tree = await self.call("Accessibility.getFullAXTree")
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree["nodes"]
            if not node["ignored"]
        ]

    async def photograph(self, file: Path | None = None, **options: Any) -> bytes:
        """Return a picture of what is seen, and save it."""
        answer = await self.call("Page.captureScreenshot", format="png", **options)
        data = b64decode(answer["data"])
        if file is not None:
            await trio.Path(file).write_bytes(data)
        return data


@asynccontextmanager
async def open_browser(folder: Path) -> AsyncIterator[Browser]:
    """Run a browser for the length of the block; it keeps its files in a folder."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    # Sockets and caches of its own stay in the folder, too.
    environment = {**os.environ, "HOME": str(folder), "TZ": "UTC"}
    async with trio.open_nursery() as nursery:
        run = partial(
            trio.run_process, command, env=environment, check=False,
            stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip
        process: trio.Process = await nursery.start(run)
        url = await _wait_for_address(trio.Path(folder) / "DevToolsActivePort")
        async with open_websocket_url(url, max_message_size=LARGEST) as connection:
            browser = Browser(connection)
            async with trio.open_nursery() as reading:
                reading.start_soon(browser.read)
                await browser.attach()
                try:
                    yield browser
                finally:
                    reading.cancel_scope.cancel()
                    # Its other processes end with the first one.
                    process.terminate()
        nursery.cancel_scope.cancel()


async def _wait_for_address(file: trio.Path) -> str:
    """Return the address of the protocol, which the browser writes when it listens."""
    while True:
        with suppress(FileNotFoundError):
            lines = (await file.read_text()).split("\n")
            if len(lines) > 1:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        await trio.sleep(0.02)
