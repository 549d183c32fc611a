"""Messages to the service manager that started this process, such as systemd (sd_notify).

Each message is one datagram to the socket that ``NOTIFY_SOCKET`` names. Without that variable,
no message is sent.
"""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"

STATUS_EVERY: Final = 10.0
"""The most seconds between two status lines."""


class ServiceManager:
    """The service manager of this process, if there is one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        name = environ.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is in the abstract namespace of Linux.
        self._address = "\0" + name[1:] if name.startswith("@") else name
        self.watchdog = _watchdog(environ)
        """The longest time between two ``ALIVE`` messages, in seconds; None if none are needed."""

    @property
    def interval(self) -> float:
        """The seconds between two messages: at most half of ``watchdog``, since one may be late."""
        return STATUS_EVERY if self.watchdog is None else min(STATUS_EVERY, self.watchdog / 2)

    def notify(self, *lines: str) -> None:
        """Send a message. An error of the socket is ignored, and the message is lost."""
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, kind) as sender:
            sender.sendto("\n".join(lines).encode(), self._address)

    def notify_reloading(self) -> None:
        """Report that a reload begins; ``READY`` reports its end."""
        self.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def notify_status(self, text: str, *lines: str) -> None:
        """Send ``lines``, and ``text`` as a line for people, which ``systemctl status`` shows."""
        self.notify(*lines, f"STATUS={' '.join(text.split())}")


def _watchdog(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    time_text = environ.get("WATCHDOG_USEC", "")
    return int(time_text) / 1e6 if time_text.isascii() and time_text.isdigit() else None
