"""The config that nodes, clients and servers share: made of parts, or of a plain mapping."""

from dataclasses import replace
from typing import Any

import pytest

from sphtp import Config
from sphtp.config import (
    Backoff,
    ChannelSettings,
    ClientLimits,
    ControlTimers,
    Impairment,
    Lane,
    StreamSettings,
)
from sphtp.errors import SettingsError
from sphtp.security import ClusterSecurity, Security
from tests.cases import each


def test_only_what_differs_from_the_defaults_is_printed() -> None:
    assert repr(Config()) == "Config()"
    printed = repr(Config(seed=3, timers=ControlTimers(heartbeat=2.0)))
    assert printed.startswith("Config(timers=ControlTimers(heartbeat=2.0")
    assert printed.endswith("seed=3)")
    assert "secret" not in repr(Config(cluster=ClusterSecurity(secret=bytes(32))))


def test_a_changed_copy_keeps_the_rest() -> None:
    config = Config(channel=ChannelSettings(linger=0), instruments=[])
    changed = replace(config, seed=3)
    assert (changed.channel, changed.seed, config.seed) == (config.channel, 3, None)
    assert Config() == Config(channel=ChannelSettings())


WRONG: list[dict[str, Any]] = [
    {"channel": None},
    {"channel": StreamSettings()},
    {"streams": ChannelSettings()},
    {"security": ClusterSecurity()},
    {"cluster": Security()},
    {"timers": 1.0},
    {"client_limits": ControlTimers()},
    {"server_limits": ClientLimits()},
    {"messages": dict},
    {"impairment": 0.1},
    {"seed": "3"},
]


@each("wrong", WRONG)
def test_a_part_of_another_type_is_refused_by_name(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(SettingsError, match=f"^{name} is .*; allowed is an? "):
        Config(**wrong)


def test_a_mapping_has_parts_in_it() -> None:
    assert Config.from_mapping({}) == Config()
    told = {
        "channel": {"timeout": 5.0, "lanes": [{}, {"priority": 1}]},
        "streams": {"backoff": "exponential"},
        "security": {"limits": {"half_open": 8}},
        "cluster": {"insecure": True},
        "client_limits": {"max_peers": 5},
        "impairment": {"loss": 0.1},
        "timers": None,
        "seed": 3,
    }
    config = Config.from_mapping(told)
    assert config.channel == ChannelSettings(timeout=5.0, lanes=(Lane(), Lane(priority=1)))
    assert config.streams == StreamSettings(backoff=Backoff.EXPONENTIAL)
    assert config.security is not None
    assert config.security.limits.half_open == 8
    assert config.cluster.insecure
    assert config.client_limits == ClientLimits(max_peers=5)
    assert (config.impairment, config.timers, config.seed) == (Impairment(loss=0.1), None, 3)


MISSPELT: list[tuple[Any, str]] = [
    ({"chanel": {}}, "there is no setting chanel; allowed are channel, "),
    ({"channel": {"timeot": 1}}, r"there is no setting channel\.timeot; allowed are "),
    ({"security": {"limits": {"half": 1}}}, r"there is no setting security\.limits\.half; "),
    ({"channel": 5}, "channel is 5; allowed is a mapping"),
    ({"streams": {"backoff": "soon"}}, r"streams\.backoff is 'soon'; allowed are uniform, exp"),
    ({"channel": {"timeout": "5"}}, "channel: "),
    ({"channel": {"congestion": 5}}, "channel: "),
    ({"channel": {"lanes": 3}}, r"channel\.lanes is 3; allowed is a list of mappings"),
    ({"channel": {"lanes": [3]}}, r"channel\.lanes is 3; allowed is a mapping"),
    ([], "config is .*; allowed is a mapping"),
]


@each("told", MISSPELT)
def test_what_is_wrong_in_a_mapping_is_named(told: tuple[Any, str]) -> None:
    with pytest.raises(SettingsError, match=f"^{told[1]}"):
        Config.from_mapping(told[0])
