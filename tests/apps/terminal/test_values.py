"""Values in JSON, peers by id or name, and a server that is not there."""

import json

import pytest
from click.testing import CliRunner

from sphtp.errors import SettingsError
from sphtp_client.terminal.connection import parse_peer
from sphtp_client.terminal.peers import clients_untrusted
from sphtp_client.terminal.ping import ping
from sphtp_client.terminal.values import parse_value, to_json


def test_without_a_server_the_search_says_so() -> None:
    result = CliRunner().invoke(ping, ["fluid", "--server", "tcp://127.0.0.85:9", "--count", "1"])
    assert result.exit_code == 3
    assert result.output == "failed: not registered: connection refused by 127.0.0.85:9\n"


def test_values_that_json_cannot_write() -> None:
    value = {1: b"\xff", "nan": float("nan"), "rows": ({"deep": None}, True)}
    expected = {"1": {"base16": "ff"}, "nan": "nan", "rows": [{"deep": None}, True]}
    assert to_json(value) == expected
    json.dumps(to_json(value), allow_nan=False)


@pytest.mark.parametrize("text", ["NaN", "{", "hello", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^VALUE is no JSON"):
        parse_value(text, "VALUE")


def test_a_peer_is_an_id_or_a_name() -> None:
    assert parse_peer("0x1a2b3c4d") == parse_peer("439041101") == 0x1A2B3C4D
    assert parse_peer("fluid-1") is None


@pytest.mark.parametrize("status", [{}, {"clients": 7}, {"clients": [7, {"id": "x"}, {"name": 1}]}])
def test_a_status_without_clients_has_no_peers(status: dict[str, object]) -> None:
    assert clients_untrusted(status) == []
