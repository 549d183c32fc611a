"""Settings: what is allowed, and what the message says about what is not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control.codec import MAX_MESSAGE, MAX_PARTS, Part
from sphtp.core.control.lists import MAX_RECORD_SIZE, divide_records, write_records
from sphtp.core.control.records import (
    KEY_SIZE,
    MAX_CANDIDATES,
    MAX_DATA,
    MAX_NAMES,
    MAX_NAMES_SIZE,
    MOST_PEERS,
    Candidate,
    PeerRecord,
    ServerAddress,
    is_newer,
    next_revision,
    size_of_names,
)
from sphtp.core.control.server import ServerMachine
from sphtp.core.control.server_messages import Peers
from sphtp.core.control.settings import MAX_CLIENTS, ControlTimers, ServerLimits
from sphtp.core.control.vocabulary import (
    draw_client_id,
    draw_nonce,
    draw_server_id,
    is_client_id,
    is_server_id,
)
from sphtp.core.topics import LONGEST_NAME
from sphtp.errors import SettingsError
from tests.cases import each


@each(
    ("text", "pub", "sub"),
    [
        ("tcp://127.0.0.1:8764", "tcp://127.0.0.1:8764", "tcp://127.0.0.1:8765"),
        ("tcp://127.0.0.1:8764,40123", "tcp://127.0.0.1:8764", "tcp://127.0.0.1:40123"),
        ("tcp://[::1]:0", "tcp://[::1]:0", "tcp://[::1]:0"),
        ("tls+tcp://host.example:1", "tls+tcp://host.example:1", "tls+tcp://host.example:2"),
        ("tcp://a:1,tcp://b:9", "tcp://a:1", "tcp://b:9"),
    ],
)
def test_server_addresses_are_read_and_written(text: str, pub: str, sub: str) -> None:
    address = ServerAddress.parse(text)
    assert address == ServerAddress(pub, sub)
    assert str(address) == text


@given(st.integers(0, 65534), st.integers(0, 65535))
def test_any_two_ports_survive(pub: int, sub: int) -> None:
    address = ServerAddress(f"tcp://127.0.0.1:{pub}", f"tcp://127.0.0.1:{sub}")
    assert ServerAddress.parse(str(address)) == address


@each(
    "text",
    [
        *(
            "",
            "localhost",
            "//localhost:1",
            "udp://h:1",
            "tcp://h",
            "tcp://h:65536",
            "tcp://h:65535",
            "tcp://h:1,x",
            "tcp://h:1,\u0663",
            "tcp://h:1," + "1" * 5000,
        ),
        *("tcp://h:1,", "tcp://h:1,2,3", "tcp://:1", "tcp://[]:1", "tcp://[1:2]:1", "tcp://[h]:1"),
        *("tcp://a?b:1", "tcp://a b:1", "tcp://\u00e4:1", "tcp://h:\u0661", "tcp://h:000001"),
        *("tcp://h:1/", "tcp://h:1\n", "TCP://h:1", "tcp://h:-1", f"tcp://{'h' * 249}:1"),
    ],
)
def test_bad_server_addresses_are_named(text: str) -> None:
    with pytest.raises(SettingsError, match="server address"):
        ServerAddress.parse(text)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("127.0.0.1:8764", "tcp://127.0.0.1:8764"),
        ("host:1,3", "tcp://host:1,3"),
        ("[::1]:0", "tcp://[::1]:0"),
    ],
)
def test_an_address_without_a_scheme_is_tcp(text: str, whole: str) -> None:
    assert ServerAddress.parse(text) == ServerAddress.parse(whole)


@pytest.mark.parametrize("url", ["tcp://h:1,2", "h", "tcp://h:65536", f"tcp://{'h' * 249}:1"])
def test_addresses_are_single_urls_from_their_making(url: str) -> None:
    for pub, sub in ((url, "tcp://h:1"), ("tcp://h:1", url)):
        with pytest.raises(SettingsError, match="server address"):
            ServerAddress(pub, sub)


def test_the_longest_url_is_taken() -> None:
    url = f"tcp://{'h' * 247}:1"
    assert len(url) == 255
    assert str(ServerAddress.parse(url)) == url
    assert len(ServerAddress.parse(f"tcp://{'h' * 247}:9").sub) == 256
    with pytest.raises(SettingsError, match="256 characters"):
        ServerAddress.parse(f"tcp://{'h' * 248}:9")


def test_port_0_is_for_listening_only() -> None:
    address = ServerAddress("tcp://h:1", "tcp://h:0")
    assert not address.is_dialable
    assert ServerAddress("tcp://h:1", "tcp://h:65535").is_dialable
    with pytest.raises(SettingsError, match="port 0"):
        ServerMachine(random.Random(1), ControlTimers(), secrets=random.Random(2), address=address)


def test_newer_revisions_are_less_than_half_way_round_ahead() -> None:
    last, half = 2**32 - 1, 2**31
    assert next_revision(0) == next_revision(last) == 1
    assert next_revision(7) == 8
    newer = [(1, 0), (last, 0), (2, 1), (half, 1), (1, last), (half - 2, last)]
    for revision, other in newer:
        assert is_newer(revision, other)
        assert not is_newer(other, revision)
    assert not any(is_newer(number, number) for number in (0, 1, half, last))


def test_the_message_says_what_is_allowed() -> None:
    with pytest.raises(SettingsError, match=r"host:port, tcp://host:port or tls\+tcp://host"):
        ServerAddress.parse("8764")


@pytest.mark.parametrize(("host", "port"), [("localhost", 1), ("127.0.0.1", 0), ("::1", 65536)])
def test_bad_candidates_are_refused(host: str, port: int) -> None:
    with pytest.raises(SettingsError, match="candidate"):
        Candidate(host, port)


@each(
    ("setting", "value"),
    [
        ("heartbeat", 0),
        ("jitter", 1),
        ("jitter", -0.1),
        ("expiry", 2.2),
        ("announce_deadline", 0.9),
        ("backoff", -1),
    ],
)
def test_contradicting_timers_are_named(setting: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"{setting} is"):
        ControlTimers(**{setting: value})


def test_a_client_waits_three_heartbeats_for_answers_unless_told_otherwise() -> None:
    assert ControlTimers().announcing == 3
    assert ControlTimers(heartbeat=4, expiry=40).announcing == 12
    assert ControlTimers(announce_deadline=5).announcing == 5


def test_heartbeats_and_backoffs_are_drawn_within_their_bounds() -> None:
    timers, entropy = ControlTimers(), random.Random(1)
    assert all(0.9 <= timers.next_heartbeat(entropy) <= 1.1 for _ in range(100))
    assert all(0 <= timers.next_backoff(entropy) <= 1 for _ in range(100))


@pytest.mark.parametrize("number", [0, MAX_CLIENTS + 1])
def test_bad_limits_are_named(number: int) -> None:
    complaint = f"max_clients is {number}; allowed are 1 to {MAX_CLIENTS}"
    with pytest.raises(SettingsError, match=complaint):
        ServerLimits(max_clients=number)


def test_as_many_clients_as_are_allowed_fit_a_list_and_a_roster() -> None:
    addresses = tuple(Candidate("::1", port) for port in range(1, MAX_CANDIDATES + 1))
    names = tuple(f"{number:031}" for number in range(MAX_NAMES))
    assert size_of_names(names) == MAX_NAMES_SIZE
    name = "🌐" * LONGEST_NAME
    largest = PeerRecord(7, 70, addresses, bytes(MAX_DATA), 1, bytes(KEY_SIZE), names, name, names)
    parameters = write_records([largest])
    assert sum(4 + len(parameter.data) for parameter in parameters) == MAX_RECORD_SIZE
    shares = divide_records([largest] * MAX_CLIENTS)
    assert len(shares) <= MAX_PARTS
    assert len(Peers(2, 0, shares[0], Part(0, len(shares))).encode()) <= MAX_MESSAGE
    assert MAX_CLIENTS <= MOST_PEERS


class Counting:
    """Randomness that returns small numbers first, those that must not be drawn among them."""

    def __init__(self) -> None:
        self._next = -1

    def getrandbits(self, count: int, /) -> int:
        self._next += 1
        return self._next % (1 << count)

    def random(self) -> float:
        return self.getrandbits(32) / (1 << 32)

    def uniform(self, a: float, b: float) -> float:
        return a


def test_reserved_numbers_are_never_drawn() -> None:
    assert draw_server_id(Counting()) == 2
    assert draw_client_id(Counting()) == 3
    assert draw_nonce(Counting()) == 1


@given(st.integers())
def test_parity_tells_servers_from_clients(seed: int) -> None:
    entropy = random.Random(seed)
    server, client = draw_server_id(entropy), draw_client_id(entropy)
    assert (is_server_id(server), is_client_id(server)) == (True, False)
    assert (is_server_id(client), is_client_id(client)) == (False, True)
    assert not any(is_server_id(n) or is_client_id(n) for n in (0, 1))
