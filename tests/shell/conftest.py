"""What tests of the shell share."""

import logging
from collections.abc import Iterator

import pytest

from sphtp.shell.instruments import limit_log


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What the log of limits says, as it grows."""
    written: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(record.getMessage())

    listener, before = Listener(logging.INFO), limit_log.level
    limit_log.addHandler(listener)
    limit_log.setLevel(logging.INFO)
    yield written
    limit_log.setLevel(before)
    limit_log.removeHandler(listener)
