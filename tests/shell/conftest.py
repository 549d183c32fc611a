"""What tests of the shell share."""

import logging
from collections.abc import Iterator

import pytest

from sphtp.shell.limits import log


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What the log of limits says, as it grows."""
    written: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(record.getMessage())

    listener, before = Listener(logging.INFO), log.level
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    yield written
    log.setLevel(before)
    log.removeHandler(listener)
