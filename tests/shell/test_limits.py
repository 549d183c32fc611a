"""The log names the setting that held something back, once in a while."""

from dataclasses import fields

import pytest

from sphtp.core.channel.security import HandshakeCounters, HandshakeLimits
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import BoundCounters, EndpointCounters
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.settings import ClientLimits, ServerLimits
from sphtp.core.stream.settings import StreamSettings
from sphtp.core.stream.statistics import SourceCounters
from sphtp.shell.instruments import QUIET, SETTINGS, LimitLog
from sphtp_server.daemon import LIMITS as OF_SERVERS

HOLDERS = (HandshakeLimits(), ChannelSettings(), StreamSettings(), ClientLimits())


@pytest.mark.parametrize("name", SETTINGS)
def test_each_limit_is_named_with_its_setting(name: str, lines: list[str]):
    kinds = (EndpointCounters, HandshakeCounters, BoundCounters, SourceCounters, ControlCounters)
    sources = [kind() for kind in kinds]
    limits = LimitLog(*sources)
    limits.look(0.0)
    assert not lines
    (source,) = [one for one in sources if hasattr(one, name) or is_of_control(one, name)]
    if isinstance(source, ControlCounters):
        source.add(name, 3)
    else:
        setattr(source, name, 3)
    limits.look(0.0)
    (line,) = lines
    assert line == f"{SETTINGS[name]} reached: {name} is now 3"
    assert any(hasattr(holder, SETTINGS[name]) for holder in HOLDERS)


def is_of_control(counters: object, name: str) -> bool:
    return isinstance(counters, ControlCounters) and isinstance(name, Count)


@pytest.mark.parametrize("kind", [ServerLimits, ClientLimits])
def test_each_limit_of_the_control_plane_has_its_counter_and_its_line(kind: type):
    counted = {Count(f"over_{field.name}") for field in fields(kind)}
    assert counted <= {*SETTINGS, *OF_SERVERS}


def test_what_is_gone_is_looked_at_a_last_time(lines: list[str]):
    source = SourceCounters()
    limits = LimitLog()
    limits.watch(source)
    source.naks_shed += 1
    limits.forget(0.0, source)
    source.naks_over_budget += 1
    limits.look(99.0)
    assert lines == ["repair_queue reached: naks_shed is now 1"]


def test_a_flood_fills_no_disk(lines: list[str]):
    handshakes = HandshakeCounters()
    limits = LimitLog(handshakes)
    for step in range(1000):
        handshakes.handshakes_over_rate += 1
        limits.look(step * QUIET / 400)
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["1", "401", "801"]


def test_one_limit_does_not_silence_another(lines: list[str]):
    handshakes = HandshakeCounters()
    limits = LimitLog(handshakes)
    handshakes.handshakes_over_rate += 1
    limits.look(0.0)
    handshakes.resets_over_rate += 1
    limits.look(0.1)
    limits.look(0.2)
    assert len(lines) == 2


def test_counters_without_a_limit_are_no_news(lines: list[str]):
    counters, handshakes = EndpointCounters(), HandshakeCounters()
    limits = LimitLog(counters, handshakes)
    handshakes.forged = handshakes.replayed = counters.unknown = counters.malformed = 99
    limits.look(0.0)
    assert not lines
