"""The log names the setting that held something back, once in a while."""

import logging
from collections.abc import Iterator

import pytest

from sphtp.core.channel.gate.counters import GateCounters
from sphtp.core.channel.gate.settings import GateSettings
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import EndpointCounters
from sphtp.shell.limits import QUIET, SETTINGS, LimitLog, log


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What is written, as it grows."""
    written: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(record.getMessage())

    listener = Listener(logging.WARNING)
    log.addHandler(listener)
    yield written
    log.removeHandler(listener)


@pytest.mark.parametrize("name", SETTINGS)
def test_each_limit_is_named_with_its_setting(name: str, lines: list[str]):
    counters, gate = EndpointCounters(), GateCounters()
    limits = LimitLog(counters, gate)
    limits.look(0.0)
    assert not lines
    source = gate if hasattr(gate, name) else counters
    setattr(source, name, 3)
    limits.look(0.0)
    (line,) = lines
    assert line == f"{SETTINGS[name]} reached: {name} is now 3"
    for setting in SETTINGS[name].split(" or "):
        assert hasattr(GateSettings(), setting) or hasattr(ChannelSettings(), setting)


def test_a_flood_fills_no_disk(lines: list[str]):
    gate = GateCounters()
    limits = LimitLog(gate)
    for step in range(1000):
        gate.handshakes_over_rate += 1
        limits.look(step * QUIET / 400)
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["1", "401", "801"]


def test_one_limit_does_not_silence_another(lines: list[str]):
    gate = GateCounters()
    limits = LimitLog(gate)
    gate.handshakes_over_rate += 1
    limits.look(0.0)
    gate.resets_over_rate += 1
    limits.look(0.1)
    limits.look(0.2)
    assert len(lines) == 2


def test_counters_without_a_limit_are_no_news(lines: list[str]):
    counters, gate = EndpointCounters(), GateCounters()
    limits = LimitLog(counters, gate)
    gate.forged = gate.replayed = counters.unknown = counters.malformed = 99
    limits.look(0.0)
    assert not lines
