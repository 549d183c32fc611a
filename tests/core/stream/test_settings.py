"""Settings of a stream: each in its range, and none that contradicts another."""

import re
from typing import Any

import pytest

from sphtp.core.stream.settings import RANGES, Backoff, StreamSettings
from sphtp.errors import SettingsError
from tests.cases import each


@each(
    "settings",
    [
        StreamSettings(),
        StreamSettings.lan(),
        StreamSettings.um(),
        StreamSettings.wan(),
        StreamSettings.wan(0.5),
        StreamSettings.wan(0.2, 11e6),
        StreamSettings.wan(0.2, 1e5),
        StreamSettings.lan().for_group(),
    ],
)
def test_every_profile_agrees_with_itself_but_for_the_defect_that_it_is_known_for(
    settings: StreamSettings,
) -> None:
    wasteful = settings.ignore >= 0.5 * settings.nak_backoff
    assert wasteful == settings.lenient


def test_the_defaults_are_those_of_one_network() -> None:
    assert StreamSettings() == StreamSettings.lan()
    assert StreamSettings.lan(linger=2.0).linger == 2.0


def test_a_wide_network_takes_its_timers_from_the_round_trip() -> None:
    near, far = StreamSettings.wan(0.02), StreamSettings.wan(0.5)
    assert (near.nak_backoff, far.nak_backoff) == (0.4, 2.0)
    assert far.ignore == pytest.approx(0.8)


def test_a_group_asks_early_only_with_the_few() -> None:
    assert StreamSettings().for_group().backoff is Backoff.EXPONENTIAL


def test_what_is_out_of_range_is_refused_by_name() -> None:
    for name, (low, high) in RANGES.items():
        for value in (low - 1, high + 1):
            changed: dict[str, Any] = {name: value}
            with pytest.raises(SettingsError, match=f"^{name} is "):
                StreamSettings(**changed)


@each(
    ("changes", "named"),
    [
        ({"ignore": 0.05}, "ignore .* nak_backoff"),
        ({"linger": 0.6}, "linger .* suppress"),
        ({"generation": 0.3}, "generation .* suppress"),
        ({"activity_timeout": 5}, "activity_timeout .* session_max"),
        ({"session_min": 6}, "session_min .* session_max"),
        ({"window": 65_536, "max_datagram": 20_000}, "window .* max_datagram"),
        ({"receive_buffer": 65_536, "max_datagram": 65_507}, "receive_buffer .* max_datagram"),
        ({"data_rate": 1e6, "repair_rate": 2e6}, "repair_rate .* data_rate"),
        ({"order_map_bytes": 2**24}, "order_map_bytes .* max_message"),
    ],
)
def test_contradictions_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        StreamSettings(**changes)


def test_on_loopback_datagrams_are_larger_and_windows_hold_several() -> None:
    assert StreamSettings().for_loopback(65_507).max_datagram == StreamSettings().local_datagram
    assert StreamSettings().for_loopback(9000).max_datagram == 9000
    assert StreamSettings(local_datagram=1400).for_loopback(65_507) == StreamSettings(
        local_datagram=1400
    )
    assert StreamSettings(max_datagram=60_000).for_loopback(65_507).max_datagram == 60_000
    assert StreamSettings(window=65_536).for_loopback(65_507).max_datagram == 16_384
    assert StreamSettings(flow_window=65_536).for_loopback(65_507).max_datagram == 8192
    assert StreamSettings(flow_window=0).for_loopback(20_000).max_datagram == 20_000
    tight = StreamSettings(receive_buffer=65_536, local_datagram=65_507)
    assert tight.for_loopback(65_507).max_datagram == 65_536 - 768
    assert StreamSettings.um().for_loopback(65_507) == StreamSettings.um()


@pytest.mark.parametrize(("rtt", "rate"), [(0.6, 125e6), (0.2, -1.0), (5.0, 1e6)])
def test_a_path_that_holds_too_much_is_named_as_it_was_given(rtt: float, rate: float) -> None:
    with pytest.raises(
        SettingsError, match=f"a round trip of {rtt:g} s at {re.escape(f'{rate:g}')}"
    ):
        StreamSettings.wan(rtt, rate)
