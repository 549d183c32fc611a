"""Logs: one line per event on standard output or in a file, for people or as JSON."""

import os
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, Final, Literal, Self, TextIO

import structlog

from sphtp.core.printable import printable, printable_lines
from sphtp.errors import SettingsError
from sphtp_server.nonblocking_log import NonBlockingLog

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

Log = structlog.typing.FilteringBoundLogger


class Id(int):
    """An id in a log line: hexadecimal for people, a number in JSON."""

    def __repr__(self) -> str:
        return f"{int(self):#010x}"


_RENDERERS: Final[dict[LogFormat, Callable[[bool], structlog.typing.Processor]]] = {
    "console": lambda terminal: structlog.dev.ConsoleRenderer(
        colors=terminal, pad_event_to=24, sort_keys=False
    ),
    "json": lambda _: structlog.processors.JSONRenderer(),
}


class LogTarget:
    """The target of a log: its lowest level, and standard output or a file.

    Raises ``SettingsError`` if the file cannot be opened.
    """

    def __init__(
        self, level: LogLevel, path: Path | None = None, output: TextIO | None = None
    ) -> None:
        self.level: LogLevel = level
        self._path = path
        self.output = output or sys.stdout
        if path is not None:
            self.output = os.fdopen(_open(path), "w", encoding="utf-8", errors="backslashreplace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None:
            self.output.close()

    def reopen(self) -> None:
        """Open the file again by its name, after a rotation renamed it. Raises ``SettingsError``.

        This loses no line: those that wait because the disk is full go to the new file.
        """
        if self._path is not None:
            opened = _open(self._path)
            os.dup2(opened, self.output.fileno(), inheritable=False)
            os.close(opened)

    def drop_below(self, _log: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        """Drop an event below the level; a processor of structlog."""
        if LEVELS.index(level) < LEVELS.index(self.level):
            raise structlog.DropEvent
        return event


LEVELS: Final = ("debug", "info", "warning", "error")


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o640)
    except OSError as error:
        raise SettingsError(f"cannot write the log to {path}: {error.strerror}") from error


def open_log(level: LogLevel, form: LogFormat, output: TextIO | None = None) -> Log:
    """Return a logger that writes to ``output``, by default standard output, and never waits."""
    return open_log_at(LogTarget(level, output=output), form)


def open_log_at(target: LogTarget, form: LogFormat) -> Log:
    """Return a logger that writes to a target, and never waits."""
    output = target.output
    logger = structlog.wrap_logger(
        _Lines(output, lambda lost: log.warning("log lines lost", lines=lost)),
        processors=[
            target.drop_below,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _make_printable,
            _RENDERERS[form](output.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("debug"),
    )
    log: Log = logger.bind()
    return log


def _make_printable(_log: Any, _level: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Escape control characters in text of peers; a traceback keeps its lines."""
    return {name: _shown(name, value) for name, value in event.items()}


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return printable_lines(value) if name == "exception" else printable(value)
    if isinstance(value, list | tuple):
        return [_shown(name, one) for one in value]
    return value


class _Lines(NonBlockingLog):
    """The target of structlog, with a method for each level."""

    debug = info = warning = error = critical = NonBlockingLog.write
