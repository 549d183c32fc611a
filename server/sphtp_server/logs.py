"""Logs: one line per event on standard output, for people or as JSON."""

import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final, Literal, TextIO

import structlog

from sphtp.core.printable import printable, printable_lines
from sphtp_server.nonblocking_log import NonBlockingLog

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

Log = structlog.typing.FilteringBoundLogger


class Id(int):
    """An id in a field of a log line: hexadecimal for people, a number in JSON."""

    def __repr__(self) -> str:
        return f"{int(self):#010x}"


_RENDERERS: Final[dict[LogFormat, Callable[[bool], structlog.typing.Processor]]] = {
    "console": lambda terminal: structlog.dev.ConsoleRenderer(
        colors=terminal, pad_event_to=24, sort_keys=False
    ),
    "json": lambda _: structlog.processors.JSONRenderer(),
}


def open_log(level: LogLevel, form: LogFormat, output: TextIO | None = None) -> Log:
    """Return a logger that writes to ``output``, by default standard output, and never waits."""
    output = sys.stdout if output is None else output
    logger = structlog.wrap_logger(
        _Lines(output, lambda lost: log.warning("log lines lost", lines=lost)),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _make_printable,
            _RENDERERS[form](output.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
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
