"""Messages and their bytes: whole, cut short, with something behind, and at random."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphtp.core.control import client_messages as client
from sphtp.core.control import server_messages as server
from sphtp.core.control.codec import (
    FEATURES,
    MAX_MESSAGE,
    NONCE,
    VERSION,
    Message,
    Parameter,
    decode_message_untrusted,
)
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.control.records import ClusterView, GoneHolder, Member, PeerRecord
from sphtp.core.control.vocabulary import DataId, MemberState, Reason
from sphtp.errors import MessageTooLargeError, RemoteError
from sphtp.testing.cluster import server_address
from tests.cases import each
from tests.core.control.samples import FROM_CLIENT, FROM_MEMBER, FROM_SERVER, V4

messages = st.builds(
    Message,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
    st.lists(
        st.builds(Parameter, st.integers(0, 2**16 - 1), st.binary(max_size=300)), max_size=8
    ).map(tuple),
)


def take(data: bytes, *, for_client: bool = False) -> Any:
    return MessageReader(ControlCounters(), for_client=for_client).take(data)


def test_the_header_and_parameters_are_little_endian() -> None:
    message = Message(0x04030201, 0x08070605, 0x0A09, (Parameter(0x0C0B, b"ab"),))
    assert message.encode() == bytes(range(1, 13)) + b"\x02\x00ab"


@given(messages)
def test_messages_survive_the_way_there_and_back(message: Message) -> None:
    assert decode_message_untrusted(message.encode()) == message


@given(messages)
def test_a_message_cut_short_is_refused_or_has_fewer_parameters(message: Message) -> None:
    data = message.encode()
    whole = {10}
    for parameter in message.parameters:
        whole.add(max(whole) + 4 + len(parameter.data))
    for end in range(len(data)):
        if end in whole:
            assert len(decode_message_untrusted(data[:end]).parameters) < len(message.parameters)
        else:
            with pytest.raises(RemoteError):
                decode_message_untrusted(data[:end])


@given(st.binary(max_size=200))
def test_random_bytes_raise_one_error_only(data: bytes) -> None:
    try:
        message = decode_message_untrusted(data)
    except RemoteError:
        return
    assert message.encode() == data


def test_a_message_over_64_kib_is_refused_on_both_sides() -> None:
    largest = (Parameter(1, bytes(65535 - 13)),)
    data = Message(7, 7, 1, largest).encode()
    assert len(data) == MAX_MESSAGE
    assert decode_message_untrusted(data).parameters == largest
    with pytest.raises(RemoteError):
        decode_message_untrusted(data + b"\0")
    with pytest.raises(MessageTooLargeError):
        Message(7, 7, 1, (Parameter(1, bytes(65535)),)).encode()


def test_every_message_survives_the_way_to_a_server() -> None:
    for message in FROM_CLIENT + FROM_SERVER + FROM_MEMBER:
        assert take(message.encode()) == message


def test_every_message_survives_the_way_to_a_client() -> None:
    for message in FROM_SERVER:
        assert take(message.encode(), for_client=True) == message


def test_unknown_parameters_are_skipped() -> None:
    for message in FROM_CLIENT + FROM_SERVER + FROM_MEMBER:
        if not isinstance(message, client.ClientUser | server.ServerUser):
            assert take(message.encode() + b"\xee\xff\x03\x00new") == message


@pytest.mark.parametrize("message", FROM_CLIENT + FROM_SERVER + FROM_MEMBER, ids=repr)
def test_any_cut_and_any_flip_is_dropped_or_read_but_never_raises(message: Any) -> None:
    data = message.encode()
    entropy = random.Random(len(data))
    for end in range(min(len(data), 400)):
        take(data[:end])
        take(data[:end], for_client=True)
    for _ in range(200):
        broken = bytearray(data)
        broken[entropy.randrange(len(broken))] ^= 1 << entropy.randrange(8)
        take(bytes(broken))
        take(bytes(broken), for_client=True)


@each(
    ("data", "count"),
    [
        (b"", "malformed"),
        (Message(7, 7, 1).encode() + b"\0", "malformed"),
        (bytes(MAX_MESSAGE + 1), "oversize"),
        (Message(7, 0, 1).encode(), "foreign"),
        (Message(7, 1, 1).encode(), "foreign"),
        (Message(9, 7, 1).encode(), "foreign"),
        (Message(7, 7, 0xFF).encode(), "unknown_command"),
        (Message(7, 7, 3).encode(), "unknown_command"),
        (Message(7, 7, 1, (Parameter(DataId.NONCE, b"short"),)).encode(), "malformed"),
        (Message(7, 7, 2, (Parameter(DataId.CANDIDATE, b"12345"),)).encode(), "malformed"),
        (Message(7, 7, 2, (Parameter(DataId.CANDIDATE, bytes(6)),)).encode(), "malformed"),
        (client.Announce(7, 5, (V4,) * 9).encode(), "malformed"),
        (Message(7, 7, 6).encode(), "malformed"),
        (server.PeersGone(4, 0, (GoneHolder(8, 9, Reason.LEFT),)).encode(), "malformed"),
        (Message(0, 4, 1, (Parameter(DataId.VIEW, b"\xff" * 8),)).encode(), "malformed"),
        (Message(0, 4, 1, (Parameter(DataId.STATE, b""),)).encode(), "malformed"),
        (Message(0, 4, 1, (Parameter(DataId.VERSION, b"\1"),)).encode(), "malformed"),
        (Message(0, 4, 1, (Parameter(DataId.FEATURES, b"\1"),)).encode(), "malformed"),
        (Message(7, 4, 4, (Parameter(DataId.REASON, b"\xff"),)).encode(), "malformed"),
        (Message(7, 7, 1, (NONCE.of(5), Parameter(DataId.NONCE, b"short"))).encode(), "malformed"),
        (Message(7, 4, 0x19, (Parameter(DataId.PART, b"\1\0\1\0"),)).encode(), "malformed"),
        (Message(7, 4, 0x11, (Parameter(DataId.PEER, bytes(17)),)).encode(), "malformed"),
        (
            server.Peers(4, 0, (PeerRecord(7, 9, data=bytes(4097)),)).encode(),
            "malformed",
        ),
        (
            server.Peers(4, 0, (PeerRecord(7, 9, (V4,) * 9),)).encode(),
            "malformed",
        ),
    ],
)
def test_what_nobody_should_send_is_dropped_and_counted(data: bytes, count: str) -> None:
    counters = ControlCounters()
    assert MessageReader(counters, for_client=False).take(data) is None
    assert counters.as_dict() == {count: 1}


GOOD_URL = b"tcp://127.0.0.1:1"


def heartbeat_of_member_at(*urls: bytes) -> bytes:
    data = bytes([8, 0, 0, 0]) + bytes(8) + b"\2"
    data += b"".join(len(url).to_bytes(2, "little") + url for url in urls)
    return Message(0, 4, 1, (Parameter(DataId.MEMBER, data),)).encode()


@each(
    "url",
    [
        *(b"", b"tcp://x", b"h:1", b"tcp://h:1\xff", b"tcp://" * 60, b"tcp://h:1,2", b"tcp://h:0"),
        *(b"tcp://h:65536", b"tcp://a?b:1", b"tcp://[h]:1", b"://h", b"quic://", b"Quic://h"),
        b"quic://" + b"h" * 250,
    ],
)
def test_a_member_with_a_bad_url_is_malformed(url: bytes) -> None:
    for urls in ((url, GOOD_URL), (GOOD_URL, url), (url, b"quic://h")):
        counters = ControlCounters()
        assert MessageReader(counters, for_client=True).take(heartbeat_of_member_at(*urls)) is None
        assert counters.as_dict() == {"malformed": 1}


@pytest.mark.parametrize("url", [b"quic://h:1", b"ws+tcp://h/path?x#y", b"ipc:///tmp/\xc3\xa4"])
def test_a_member_that_cannot_be_dialled_is_a_member(url: bytes) -> None:
    for urls in ((url, GOOD_URL), (GOOD_URL, url), (url, url), ()):
        heard = take(heartbeat_of_member_at(*urls), for_client=True)
        assert Member(8, 0, None) in heard.view.members
        assert heard.view.active == {4, 8}


def test_what_later_versions_say_is_heard_as_far_as_it_is_understood() -> None:
    state = Parameter(DataId.STATE, b"\x09")
    heard = take(Message(0, 4, 1, (VERSION.of(9), FEATURES.of(9), state)).encode())
    assert heard.member.state is MemberState.JOINING
    for number in (0, 3, 0xFFFF):
        reason = Parameter(DataId.REASON, number.to_bytes(2, "little"))
        assert take(Message(7, 4, 4, (reason,)).encode()) == server.IdNack(4, 7, 0, Reason.OTHER)
    gone = Parameter(DataId.GONE, bytes([7, 0, 0, 0]) + bytes(8) + b"\xff\0")
    heard = take(Message(0, 4, 0x12, (gone,)).encode())
    assert heard == server.PeersGone(4, 0, (GoneHolder(7, 0, Reason.OTHER),))


def test_parameters_that_a_command_does_not_take_are_not_looked_at() -> None:
    broken = tuple(Parameter(number, b"?") for number in DataId if number != DataId.NONCE)
    assert take(Message(7, 7, 5, broken).encode()) == client.Leave(7, 0)


def test_the_first_of_a_kind_counts() -> None:
    twice = (NONCE.of(5), NONCE.of(6))
    assert take(Message(7, 7, 5, twice).encode()) == client.Leave(7, 5)


def test_a_plain_server_heartbeat_is_a_view_of_one() -> None:
    heard = take(Message(0, 4, 1).encode(), for_client=True)
    assert heard.view.members == (Member(4, 0, None),)
    assert heard.roster is None


def test_too_many_members_are_malformed() -> None:
    members = tuple(Member(number, 1, server_address(1)) for number in range(2, 134, 2))
    heartbeat = server.ServerHeartbeat(members[0], ClusterView(1, members))
    assert take(heartbeat.encode()) is None


def test_client_messages_are_foreign_to_clients() -> None:
    counters = ControlCounters()
    assert MessageReader(counters, for_client=True).take(client.Leave(7, 5).encode()) is None
    assert counters["foreign"] == 1


def test_the_published_bytes_of_an_announcement() -> None:
    announce = client.Announce(0x01020305, 0x1122334455667788, (V4,))
    assert announce.encode().hex(" ") == (
        "05 03 02 01 05 03 02 01 02 00 "
        "03 00 08 00 88 77 66 55 44 33 22 11 "
        "01 00 02 00 01 00 "
        "02 00 04 00 00 00 00 00 "
        "04 00 06 00 88 13 7f 00 00 01"
    )
