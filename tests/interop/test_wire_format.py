"""`docs/reference/wire` says what the code does: every byte, number and default."""

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import trio

from sphtp.core.arrays import EXTENSION, MAX_DIMENSIONS
from sphtp.core.channel import frames, handshake
from sphtp.core.channel.lifecycle import CloseReason
from sphtp.core.channel.received_packets import ReceivedPackets
from sphtp.core.channel.settings import RANGES, ChannelSettings
from sphtp.core.control import client_messages, server_messages
from sphtp.core.control.codec import ROSTER, Message, decode_message_untrusted
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.lists import Fingerprints
from sphtp.core.control.settings import ControlTimers
from sphtp.core.control.vocabulary import USER_COMMANDS, Command, DataId, MemberState, Reason
from sphtp.core.datagrams import Kind
from sphtp.core.packing import MALFORMED, MAX_ARRAYS, pack, unpack
from sphtp.core.secure.signing import (
    SIGNATURE,
    TO_CLIENTS,
    TO_SERVERS,
    ClusterKey,
    ServerKey,
    SignatureStatus,
    Signer,
    Verifier,
    strip_signature,
)
from sphtp.core.secure.vouch import VOUCHER, Authenticity, Voucher, strip
from sphtp.core.serial import unwrap, wrap
from sphtp.errors import RemoteError
from sphtp.shell.bus_listening import ListeningPubSocket, ListeningSubSocket
from sphtp.shell.lifetime import running
from tests.cases import Decorator, each
from tests.interop import translation
from tests.interop.datagrams import read_datagram, write_datagram
from tests.interop.page import TEXT, Vector, read_vectors, rows_under
from tests.interop.spoken import message_said, read_message

VECTORS = read_vectors()
FIRST_LOCAL_REASON = CloseReason.REFUSED
HEARD_BY_CLIENTS = ("server/", "plain/server/", "lenient/server/", "malformed/to-client/")
DROPPED = {Count.MALFORMED, Count.OVERSIZE, Count.FOREIGN, Count.UNKNOWN_COMMAND}
NAME = re.compile(r"[A-Z_]+")
# Who speaks, as the table of commands has it, and the vectors of what they say.
SPEAKERS = {"client": "client", "server": "server", "server to servers": "member"}


def vectors_of(*prefixes: str) -> list[Vector]:
    return [v for v in VECTORS if v.name.startswith(tuple(f"{prefix}/" for prefix in prefixes))]


def family(*prefixes: str) -> Decorator:
    return each("vector", vectors_of(*prefixes))


def take(vector: Vector) -> tuple[object, ControlCounters]:
    """Let whoever hears such a message read it."""
    return read_message(vector.data, for_client=vector.name.startswith(HEARD_BY_CLIENTS))


class TestControlVectors:
    @family("client", "server", "member", "plain")
    def test_message_and_fields_are_the_same(self, vector: Vector) -> None:
        assert translation.message_of(vector.fields).encode() == vector.data
        assert translation.name_message(decode_message_untrusted(vector.data)) == vector.fields

    @family("client", "server", "member")
    def test_our_machines_say_it_and_hear_it(self, vector: Vector) -> None:
        said = message_said(vector)
        heard, counters = take(vector)
        assert said.encode() == vector.data
        assert heard == said
        assert counters.as_dict() == {}

    @family("plain", "lenient/client", "lenient/server")
    def test_what_says_less_or_more_is_heard(self, vector: Vector) -> None:
        heard, counters = take(vector)
        assert heard == message_said(vector)
        assert counters.as_dict() == {}

    @family("parameter")
    def test_parameter_and_fields_are_the_same(self, vector: Vector) -> None:
        number, length = struct.unpack_from("<HH", vector.data)
        parameter = translation.parameter_of(vector.fields)
        assert (parameter.id, parameter.data) == (number, vector.data[4:])
        assert length == len(parameter.data)
        assert translation.name_parameter(parameter) == vector.fields

    @family("roster")
    def test_rosters_have_that_digest(self, vector: Vector) -> None:
        prints = Fingerprints()
        for peer in vector.fields["peers"]:
            prints.put(translation.peer_of(peer))
        digest = prints.digest
        assert (digest.count, digest.mix) == (vector.fields["count"], vector.fields["mix"])
        assert ROSTER.of(digest).data == vector.data

    @family("malformed/to-server", "malformed/to-client")
    def test_malformed_messages_are_dropped(self, vector: Vector) -> None:
        heard, counters = take(vector)
        assert heard is None
        ((count, times),) = counters.as_dict().items()
        assert count in DROPPED
        assert times == 1

    @family("vouched")
    def test_vouched_messages_have_that_mark(self, vector: Vector) -> None:
        secret, boot = bytes.fromhex(vector.fields["secret"]), vector.fields["boot"]
        message = bytes.fromhex(vector.fields["message"])
        speaker, listener = Voucher(secret, boot), Voucher(secret, 0)
        marked = [speaker.vouch(message) for _ in range(vector.fields["count"])]
        assert marked[-1] == vector.data
        assert listener.judge(vector.data) is Authenticity.GENUINE
        assert strip(vector.data) == message

    @family("malformed/vouched")
    def test_what_nobody_vouches_for_is_dropped(self, vector: Vector) -> None:
        assert Voucher(bytes(range(32)), 0).judge(vector.data) is Authenticity.UNVOUCHED

    def test_one_number_stands_for_vouchers(self) -> None:
        assert DataId(VOUCHER) is DataId.VOUCHER

    @family("vouched")
    def test_without_the_secret_a_voucher_is_skipped(self, vector: Vector) -> None:
        message = bytes.fromhex(vector.fields["message"])
        for_client = "server" in vector.name
        heard = [read_message(d, for_client=for_client)[0] for d in (vector.data, message)]
        assert heard[0] == heard[1] is not None

    @family("signed")
    def test_signed_messages_have_that_mark(self, vector: Vector) -> None:
        fields = vector.fields
        secret, message = (bytes.fromhex(fields[name]) for name in ("server_secret", "message"))
        purpose = {"clients": TO_CLIENTS, "servers": TO_SERVERS}[fields["to"]]
        key = ServerKey(secret)
        if fields["cluster_secret"] is not None:
            key = key.certified(ClusterKey(bytes.fromhex(fields["cluster_secret"])))
        signer = Signer(key, fields["boot"], purpose)
        assert [signer.sign(message) for _ in range(fields["count"])][-1] == vector.data
        verifier = Verifier(_known_keys(), purpose)
        assert verifier.judge(vector.data, 0).verdict is SignatureStatus.GENUINE
        assert strip_signature(vector.data) == message

    @family("malformed/signed")
    def test_what_no_server_signs_is_dropped(self, vector: Vector) -> None:
        judged = Verifier(_known_keys(), TO_CLIENTS).judge(vector.data, 0)
        assert judged.verdict in (SignatureStatus.UNSIGNED, SignatureStatus.UNKNOWN)

    def test_one_number_stands_for_signatures(self) -> None:
        assert DataId(SIGNATURE) is DataId.SIGNATURE

    @family("signed")
    def test_without_keys_a_signature_is_skipped(self, vector: Vector) -> None:
        message = bytes.fromhex(vector.fields["message"])
        for_client = vector.fields["to"] == "clients"
        heard = [read_message(d, for_client=for_client)[0] for d in (vector.data, message)]
        assert heard[0] == heard[1] is not None


def _known_keys() -> list[bytes]:
    """The keys of the first example, of a cluster and of a server."""
    fields = next(each.fields for each in VECTORS if each.name.startswith("signed/"))
    return [bytes.fromhex(fields[name]) for name in ("cluster", "key")]


class TestChannelVectors:
    @family("datagram")
    def test_datagram_and_fields_are_the_same(self, vector: Vector) -> None:
        assert write_datagram(vector.fields) == vector.data
        assert read_datagram(vector.data) == vector.fields

    @family("frame")
    def test_frame_and_fields_are_the_same(self, vector: Vector) -> None:
        assert frames.encode_frames([translation.frame_of(vector.fields)]) == vector.data
        (frame,) = frames.decode_frames_untrusted(vector.data)
        assert translation.name_frame(frame) == vector.fields

    def test_messages_of_equal_lengths_are_read_as_a_run_is(self) -> None:
        run = frames.decode_frames_untrusted(bytes.fromhex("06000000 0200 0100 6162"))
        told_apart = bytes.fromhex("01000000 0200 0100 0100 6162")
        assert frames.decode_frames_untrusted(told_apart) == run

    @family("acks")
    def test_received_packets_are_acked_so(self, vector: Vector) -> None:
        acks = ReceivedPackets(vector.fields["first"])
        for sequence in vector.fields["received"]:
            assert acks.restore(wrap(sequence)) == sequence
            acks.received(sequence)
        ack, ack_bits = acks.ack()
        assert (ack, ack_bits) == (vector.fields["ack"], vector.fields["ack_bits"])
        assert struct.pack("<HI", ack, ack_bits) == vector.data

    @family("lenient/datagram")
    def test_datagrams_are_read_so(self, vector: Vector) -> None:
        assert read_datagram(vector.data) == vector.fields

    @family("malformed/datagram")
    def test_malformed_datagrams_are_refused(self, vector: Vector) -> None:
        with pytest.raises(RemoteError):
            read_datagram(vector.data)

    def test_the_unwrap_examples_are_right(self) -> None:
        rows = [list(map(int, row)) for row in rows_under("Unwrap examples")]
        assert len(rows) == 8
        assert [unwrap(short, reference) for short, reference, _ in rows] == [r[2] for r in rows]


def array_of(fields: dict[str, Any]) -> "np.ndarray[Any, Any]":
    dtype = f"{fields['order']}{fields['kind']}{fields['itemsize']}"
    return np.frombuffer(bytes.fromhex(fields["items"]), dtype).reshape(fields["shape"])


class TestArrayVectors:
    @family("array", "lenient/array")
    def test_array_and_fields_are_the_same(self, vector: Vector) -> None:
        expected = array_of(vector.fields)
        for received in (unpack(vector.data), unpack(b"\x91" + vector.data)[0]):
            assert received.dtype.str == expected.dtype.str
            assert received.shape == expected.shape
            assert received.tobytes() == expected.tobytes()

    @family("array")
    def test_an_array_is_written_so(self, vector: Vector) -> None:
        assert pack(array_of(vector.fields)) == vector.data
        assert pack([array_of(vector.fields)]) == b"\x91" + vector.data

    @family("malformed/array")
    def test_malformed_arrays_are_dropped(self, vector: Vector) -> None:
        for data in (vector.data, b"\x91" + vector.data):
            with pytest.raises(MALFORMED):
                unpack(data)

    def test_the_numbers_of_the_page_are_ours(self) -> None:
        text = re.sub(r"\s+", " ", TEXT)
        assert f"msgpack's extension {EXTENSION}," in text
        assert f"number of dimensions, 0 to {MAX_DIMENSIONS};" in text
        assert f"with more than {MAX_ARRAYS} [arrays]" in text


def transport(name: str) -> bytes:
    return next(vector.data for vector in VECTORS if vector.name == f"transport/{name}")


class TestTransportVectors:
    """Bare TCP against our sockets."""

    async def test_a_publisher_speaks_so(self) -> None:
        connected = trio.Event()
        message = transport("message")
        with trio.fail_after(10), ListeningPubSocket(on_connected=connected.set) as publisher:
            url = publisher.listen("tcp://127.0.0.1:0")
            async with running(publisher.run), await connect(url) as stream:
                await stream.send_all(transport("hello SUB"))
                await connected.wait()
                publisher.send(message[8:])
                expected = transport("hello PUB") + message
                assert await receive_exactly(stream, len(expected)) == expected

    async def test_a_subscriber_is_spoken_to_so(self) -> None:
        message = transport("message")
        with trio.fail_after(10), ListeningSubSocket() as subscriber:
            subscriber.subscribe(message[8:12])
            async with await connect(subscriber.listen("tcp://127.0.0.1:0")) as stream:
                await stream.send_all(transport("hello PUB") + message)
                assert await subscriber.receive_batch() == [message[8:]]
                hello = transport("hello SUB")
                assert await receive_exactly(stream, len(hello)) == hello

    @pytest.mark.parametrize("vector", vectors_of("malformed/transport"), ids=str)
    async def test_a_subscriber_hangs_up(self, vector: Vector) -> None:
        with trio.fail_after(10), ListeningSubSocket() as subscriber:
            subscriber.subscribe(b"")
            url = subscriber.listen("tcp://127.0.0.1:0")
            async with running(subscriber.receive_batch), await connect(url) as stream:
                await stream.send_all(vector.data)
                hello = transport("hello SUB")
                assert await receive_exactly(stream, len(hello)) == hello
                with suppress(trio.BrokenResourceError):
                    assert await stream.receive_some() == b""

    @family("transport")
    def test_the_fields_are_in_the_bytes(self, vector: Vector) -> None:
        written: dict[str, Callable[[Any], bytes]] = {
            "protocol": lambda number: b"\0SP\0" + struct.pack(">HH", number, 0),
            "message": lambda text: struct.pack(">Q", len(text) // 2) + bytes.fromhex(text),
        }
        ((key, value),) = vector.fields.items()
        assert written[key](value) == vector.data


async def connect(url: str) -> trio.SocketStream:
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


async def receive_exactly(stream: trio.SocketStream, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = await stream.receive_some(count - len(received))
        assert part, f"closed after {received!r}"
        received += part
    return received


def numbered(title: str) -> set[tuple[int, str]]:
    """The numbers and names under a heading; tables of offsets have no names in capitals."""
    return {(int(row[0], 0), row[1]) for row in rows_under(title) if row[1].isupper()}


def members(kind: type[IntEnum]) -> set[tuple[int, str]]:
    return {(member.value, member.name) for member in kind}


def shown(*prefixes: str) -> list[dict[str, Any]]:
    return [v.fields for v in VECTORS if v.name.startswith(tuple(f"{p}/" for p in prefixes))]


class TestNothingIsMissing:
    """What has a number in the code has a row and a vector on the page; nothing else has."""

    TABLES = pytest.mark.parametrize(
        ("title", "kind"),
        [
            ("Commands", Command),
            ("Parameters", DataId),
            ("Reasons", Reason),
            ("Server states", MemberState),
            ("REFUSE", handshake.Refusal),
            ("Frames", frames.FrameKind),
        ],
    )

    @TABLES
    def test_every_number_has_a_row(self, title: str, kind: type[IntEnum]) -> None:
        assert numbered(title) == members(kind)

    def test_every_datagram_has_a_row(self) -> None:
        assert numbered("Datagrams") == members(Kind)

    def test_every_reason_for_closing_has_a_row_and_a_vector(self) -> None:
        travelling = {r for r in CloseReason if r < FIRST_LOCAL_REASON}
        assert numbered("Closing") == {(r.value, r.name) for r in travelling}
        assert {f["reason"] for f in shown("frame") if "reason" in f} == travelling

    def test_every_command_has_a_row_and_a_vector_for_each_who_says_it(self) -> None:
        readers = {
            "client": client_messages.READERS,
            "server": {**server_messages.READERS, **server_messages.RECORD_READERS},
            "server to servers": {
                **server_messages.MEMBER_READERS,
                **server_messages.MEMBER_RECORD_READERS,
            },
        }
        said = {(who, int(command)) for who, commands in readers.items() for command in commands}
        assert {(row[2], int(row[0], 0)) for row in rows_under("Commands")} == said
        for who, command in said:
            assert command in {fields["command"] for fields in shown(SPEAKERS[who])}, (who, command)

    def test_every_parameter_is_named_here_and_has_a_vector(self) -> None:
        assert set(translation.PARAMETERS) == set(DataId)
        assert {fields["id"] for fields in shown("parameter")} == set(DataId)

    def test_every_reason_and_state_has_a_vector(self) -> None:
        said = [p for f in shown("server", "member") for p in f["parameters"]]
        assert {p["reason"] for p in said if "reason" in p} == set(Reason) - {Reason.OTHER}
        assert {p["state"] for p in said if "state" in p} == set(MemberState)

    def test_every_datagram_refusal_and_frame_has_a_vector(self) -> None:
        datagrams = shown("datagram")
        kinds = {d["kind"] for d in (*datagrams, *shown("stream", "feedback"))}
        assert kinds == set(Kind)
        assert {d["reason"] for d in datagrams if "reason" in d} == set(handshake.Refusal)
        assert {f["kind"] for f in shown("frame")} == set(frames.FrameKind)

    def test_every_row_of_a_command_names_the_parameters_of_its_vectors(self) -> None:
        named: dict[tuple[str, int], set[str]] = {}
        for number, _, who, _, parameters in rows_under("Commands"):
            named.setdefault((who, int(number, 0)), set()).update(NAME.findall(parameters))
        said: dict[tuple[str, int], set[str]] = {key: set() for key in named}
        for who, speaker in SPEAKERS.items():
            for fields in shown(speaker):
                if fields["command"] < USER_COMMANDS:
                    names = {DataId(p["id"]).name for p in fields["parameters"]}
                    said[who, fields["command"]] |= names
        # Nonces are optional there, for plain SphTP's sake; whoever asks for a status has none.
        named["client", Command.STATUS_REQUEST].remove(DataId.NONCE.name)
        assert said == named


class TestDefaults:
    def test_the_control_timers_are_those_of_the_code(self) -> None:
        page = {row[0]: float(row[1]) for row in rows_under("Timers")}
        assert page.pop("announce_deadline") == ControlTimers().announcing
        assert ControlTimers() == ControlTimers(**page)

    def test_the_channel_settings_are_those_of_the_code(self) -> None:
        settings = ChannelSettings()
        rows = {row[0]: row[1:3] for row in rows_under("Limits and defaults")}
        rows["first_sequence"][1] = "0 to 4611686018427387904"
        for name, (default, bounds) in rows.items():
            low, high = map(float, bounds.split(" to "))
            # Without a keepalive of its own a channel has one that follows from its timeout.
            own = getattr(settings, "keepalive_interval" if name == "keepalive" else name)
            assert float(default) == own, name
            assert (low, high) == RANGES[name], name
        assert set(RANGES) - set(rows) == {"send_buffer_bytes", "envelope"}


class TestThePageItself:
    def test_names_are_unique(self) -> None:
        names = [vector.name for vector in VECTORS]
        assert len(set(names)) == len(names)

    def test_a_wrong_byte_is_caught(self) -> None:
        vector = next(v for v in VECTORS if v.name == "client/HEARTBEAT")
        changed = Vector(vector.name, vector.fields, vector.data[:-1] + b"\x7f")
        assert translation.message_of(changed.fields).encode() != changed.data
        assert take(changed)[0] != message_said(changed)

    def test_unknown_parameters_keep_their_place(self) -> None:
        unknown = {"id": 0xFFFE, "data": "00ff"}
        message = translation.message_of(
            {"simulation": 3, "sender": 3, "command": 2, "parameters": [unknown]}
        )
        assert isinstance(message, Message)
        assert translation.name_message(message)["parameters"] == [unknown]
