"""Every decoder by itself: what it refuses raises ``RemoteError``, what it takes means something.

Where there is an encoder, what was decoded is encoded and decoded again, and is the same.
"""

import fcntl
import io
import json
import mmap
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from math import isfinite
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast

from rich.console import Console

from sphtp.core.arrays import array_parts, read_array_untrusted
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.frames import (
    DATA,
    Close,
    Packet,
    decode_data_untrusted,
    decode_frames_untrusted,
    decode_packet_untrusted,
    encode_data,
    encode_frames,
)
from sphtp.core.channel.handshake import (
    CONNECT_SIZE,
    decode_accept_untrusted,
    decode_connect_untrusted,
    decode_refuse_untrusted,
    encode_accept,
    encode_connect,
    encode_refuse,
)
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.shared_memory import (
    DATA_START,
    ENTRY,
    HEAD,
    NOTICE_WORDS,
    NOTICES,
    RING_START,
    SLOTS,
    Region,
    SegmentTerms,
    decode_descriptor_untrusted,
    decode_hello_untrusted,
    decode_segment_untrusted,
    encode_descriptor,
    encode_hello,
    encode_segment,
)
from sphtp.core.control import announcement
from sphtp.core.control.codec import decode_message_untrusted
from sphtp.core.control.counters import ControlCounters
from sphtp.core.control.inbound import MessageReader
from sphtp.core.datagrams import Datagrams, decode_front_untrusted, encode_front
from sphtp.core.group.messages import (
    contribution_head,
    decode_group_message_untrusted,
    encode_group_message,
    step_of_untrusted,
)
from sphtp.core.messages import Compression, MessageFactory, PlainMessages
from sphtp.core.messages.codec import MessageCodec
from sphtp.core.nat import TurnServer
from sphtp.core.requests import wire
from sphtp.errors import RemoteError
from sphtp.shell.discovery import texts_untrusted
from sphtp.shell.encoding import HELD, RAW, encoding_for
from sphtp.shell.nat import NatDriver, RelayLink, answer_binding_untrusted, decode_stun_untrusted
from sphtp.shell.shared_memory import InboundSegment
from sphtp.shell.status import read_untrusted
from sphtp_client.doctor.collection import members_untrusted, wall_offset_untrusted
from sphtp_client.recording.recorder import UNDECODED
from sphtp_client.simulation.frames import frames_sha256, read_frame_untrusted
from sphtp_client.simulation.initial_conditions import initial_spheres
from sphtp_client.simulation.scenario import Scenario
from sphtp_client.simulation.scenario_file import parse_scenario
from sphtp_client.simulation.slabs import Slab, SlabSide
from sphtp_client.simulation.state import Spheres, pack, unpack_untrusted
from sphtp_client.terminal.peers import clients_untrusted
from sphtp_client.top.model import read_status_untrusted
from sphtp_server.status import show
from tests.core.messages.kinds import KINDS, Declared, Written
from tests.fuzz.choices import Script
from tests.fuzz.registry import stored
from tests.fuzz.reports import REPORTS, show_places
from tests.fuzz.streams import STREAMS

Decoder = Callable[[bytes], None]

SEGMENT: Final = 2**21
ADDRESS: Final = ("10.0.0.1", 1)
COMPRESSION: Final = Compression(threshold=0, max_size=10_000)
FACTORIES: Final = (MessageFactory(KINDS), MessageFactory(KINDS, compression=COMPRESSION))
CODECS: Final[Sequence[MessageCodec]] = (
    PlainMessages(),
    PlainMessages(compression=COMPRESSION),
    *FACTORIES,
)


def front(data: bytes) -> None:
    """The first five bytes of any datagram."""
    kind, connection_id = decode_front_untrusted(data)
    assert encode_front(kind, connection_id) == data[:5]


def header(data: bytes) -> None:
    """The header of a DATA datagram."""
    decoded = decode_data_untrusted(data)
    assert encode_data(0, decoded)[5:] == data[5 : DATA.size]


def frames(data: bytes) -> None:
    """What a DATA datagram holds."""
    # Words of a CLOSE are written no longer than they need to be.
    decoded = [it for it in decode_frames_untrusted(data) if not isinstance(it, Close)]
    assert decode_frames_untrusted(encode_frames(decoded)) == decoded


def packet(data: bytes) -> None:
    """A whole DATA datagram."""
    decoded = decode_packet_untrusted(data)
    assert (decoded.size, decoded.number) == (len(data), 1)


def runs(data: bytes) -> None:
    """Datagrams that came together: taken as one they say what they say one by one."""
    script = Script(data)
    size, data = 1 + script.below(2048), data[2:]
    start = 0
    while start < len(data):
        try:
            together = decode_packet_untrusted(data, start, size)
        except RemoteError:
            start += size
            continue
        cuts = range(start, start + together.number * size, size)
        single = [decode_packet_untrusted(data[cut : cut + size]) for cut in cuts]
        assert together.size == sum(it.size for it in single)
        assert _said([together]) == _said(single)
        start += together.number * size


def _said(packets: list[Packet]) -> list[bytes]:
    said = [frame for packet in packets for frame in packet.frames]
    # A run is of one kind: messages, or parts of one message, or nothing.
    return [payload for frame in said for payload in getattr(frame, "payloads", ())] + [
        b"".join(bytes(getattr(frame, "payload", b"")) for frame in said)
    ]


def connect(data: bytes) -> None:
    """Somebody opens a channel."""
    decoded = decode_connect_untrusted(data)
    assert decode_connect_untrusted(encode_connect(decoded)) == decoded


def accept(data: bytes) -> None:
    """Somebody grants one."""
    decoded = decode_accept_untrusted(data)
    assert encode_accept(0, decoded)[5:] == data[5:]


def refuse(data: bytes) -> None:
    """Somebody refuses one."""
    decoded = decode_refuse_untrusted(data)
    room = max(CONNECT_SIZE, 4 * len(data))
    assert decode_refuse_untrusted(encode_refuse(0, decoded, room)) == decoded


def request(data: bytes) -> None:
    """A message of a channel of requests."""
    decoded = wire.decode_message_untrusted(data)
    again = wire.decode_message_untrusted(wire.encode_message(decoded))
    # What is no UTF-8, or no text to show, was made such, and may have been cut.
    if not isinstance(decoded, wire.ErrorMessage):
        assert again == decoded


def group_message(data: bytes) -> None:
    """A message between members of a group."""
    step = step_of_untrusted(data)
    if step is not None:
        assert contribution_head(step) == data[:9]
        return
    decoded = decode_group_message_untrusted(data)
    assert decode_group_message_untrusted(encode_group_message(decoded)) == decoded


def announced(data: bytes) -> None:
    """What a server announces: a TXT record, one key and value a line."""
    lines = [line.partition(b"=") for line in data.split(b"\n")]
    values = {key: value if sign else None for key, sign, value in lines}
    decoded = announcement.decode_untrusted(texts_untrusted(values))
    assert announcement.decode_untrusted(decoded.encode()) == decoded
    assert isinstance(decoded.obstacle(b"secret", has_tls=False), str)


def shared_memory(data: bytes) -> None:
    """What two processes exchange about shared memory."""
    kind, rest = data[:1], data[1:]
    if kind == b"\x00":
        assert encode_hello(decode_hello_untrusted(rest)) == rest
    elif kind == b"\x01":
        assert encode_segment(decode_segment_untrusted(rest)) == rest
    else:
        region = decode_descriptor_untrusted(rest, (SEGMENT, SEGMENT), 2**20)
        assert RING_START < region.start <= region.start + region.size <= SEGMENT
        assert encode_descriptor(rest[:16], region) == rest


def shared_segment(data: bytes) -> None:
    """What a peer writes into ring and notices of a segment: regions within it, or nothing."""
    script = Script(data)
    memory, file = peer_segment()
    memory[:DATA_START] = bytes(DATA_START)
    segment = InboundSegment(
        (os.dup(file), os.dup(file)), SegmentTerms(bytes(16), SEGMENT, SEGMENT), 2**20
    )
    taken: list[bytes] = []

    def free(opened: tuple[Region, memoryview]) -> None:
        region, payload = opened
        assert len(payload) == region.size
        payload.release()
        segment.free(region)

    def deliver(lane: int, message_id: int, descriptor: bytes) -> bool:
        assert 0 <= lane < 256
        assert 0 <= message_id < 2**16
        taken.append(descriptor)
        return len(taken) < 2 * SLOTS

    while script:
        entry, head = script.some_bytes(ENTRY), script.below(2**32)
        start = RING_START + ENTRY * (script.below(2048) % SLOTS)
        memory[start : start + len(entry)] = entry
        memory[4 * HEAD : 4 * HEAD + 4] = head.to_bytes(4, "little")
        segment.take_entries_untrusted(deliver)
        while taken:
            descriptor = taken.pop()
            assert segment.is_descriptor(descriptor)
            with suppress(RemoteError):
                free(segment.open_untrusted(descriptor))
        place, notice = NOTICES + NOTICE_WORDS * script.below(2), script.some_bytes(32)
        memory[4 * place : 4 * place + len(notice)] = notice
        least = script.below(2**16)
        segment.has_notice(least)
        with suppress(RemoteError):
            while opened := segment.take_notice_untrusted(least, script.below(2**32)):
                free(opened)
    segment.close()


@cache
def peer_segment() -> tuple[mmap.mmap, int]:
    file = os.memfd_create("fuzz", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, SEGMENT)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    return mmap.mmap(file, SEGMENT), file


def shared_message(data: bytes) -> None:
    """A message in memory means the same as one in a packet, and does not change with it."""
    if not data:
        # No region is empty.
        return
    for encoding in (encoding_for(None), encoding_for(FACTORIES[0]), RAW):
        memory = bytearray(data)
        read = encoding.decode_shared_untrusted(memoryview(memory), is_copied=True)
        memory[:] = bytes(len(memory))
        known = encoding.decode_many_untrusted([data])
        assert encoding.encode_many(read, None) == encoding.encode_many(known, None)
        encoding.decode_shared_untrusted(memoryview(data), is_copied=False)
    assert HELD.decode_shared_untrusted(memoryview(data), is_copied=True) == [data]
    assert UNDECODED.decode_many_untrusted([data]) == [data]


def control_message(data: bytes) -> None:
    """A message from the bus."""
    assert decode_message_untrusted(data).encode() == data


def control_intake(data: bytes) -> None:
    """What it means to a client and to a server: something, or one more is counted."""
    for for_client in (True, False):
        counters = ControlCounters()
        taken = MessageReader(counters, for_client=for_client).take(data)
        assert (taken is None) == any(counters.as_dict().values())


def messages(data: bytes) -> None:
    """Payloads as each codec takes them: many at a time as one by one, if none is malformed."""
    script = Script(data)
    codec = script.pick(CODECS)
    payloads = [script.some_bytes(255) for _ in range(1 + script.below(4))]
    one_by_one = [value for payload in payloads for value in _decoded(codec, payload)]
    for many in (codec.decode_many_untrusted, encoding_for(codec).decode_many_untrusted):
        together = codec.encode_many(many(payloads))
        assert len(together) <= len(payloads)
        if len(one_by_one) == len(payloads):
            assert together == codec.encode_many(one_by_one)


def _decoded(codec: MessageCodec, payload: bytes) -> list[Any]:
    try:
        return [codec.decode_untrusted(payload)]
    except RemoteError:
        return []


def message(data: bytes) -> None:
    """One payload of a type that is known, written as it was read."""
    script = Script(data)
    codec = script.pick(FACTORIES)
    written = codec.encode(codec.decode_untrusted(data[1:]))
    assert codec.encode(codec.decode_untrusted(written)) == written


def plain_messages(data: bytes) -> None:
    """Payloads without types."""
    script = Script(data)
    payloads = [script.some_bytes(255) for _ in range(1 + script.below(4))]
    assert len(encoding_for(None).decode_many_untrusted(payloads)) <= len(payloads)


def array(data: bytes) -> None:
    """An array of NumPy's: there is one way to write it."""
    assert b"".join(array_parts(read_array_untrusted(data, 0, len(data)))) == data


def bit_message(data: bytes) -> None:
    """A message in bits: there is one way to write it."""
    for kind in (Declared, Written):
        try:
            read = kind.read_untrusted(data)
        except RemoteError:
            continue
        assert read.write() == data


def inflated(data: bytes) -> None:
    """Deflated bytes, which become no more than is allowed."""
    assert len(COMPRESSION.inflate_untrusted(data)) <= COMPRESSION.max_size


def spheres(data: bytes) -> None:
    """The spheres of a simulation."""
    step, decoded = unpack_untrusted(data, _table())
    assert pack(decoded, step) == data


def slab(data: bytes) -> None:
    """What a neighbour says in a step of a simulation."""
    ours = Slab(scenario(), 0, 2, initial=_table())
    ours.drift()
    ours.absorb_untrusted(SlabSide.RIGHT, data)
    ours.kick()


def frame(data: bytes) -> None:
    """A slab's state, as it is published: a message, and then a frame."""
    for message in encoding_for(None).decode_many_untrusted([data]):
        read = read_frame_untrusted(message)
        assert read.x.shape == read.v.shape == (len(read), 3)
        frames_sha256([read])


@cache
def scenario() -> Scenario:
    gas = {"kind": "gas", "count": 40, "radius": 0.01, "spread": 0.2, "speed": 3.0, "seed": 1}
    return parse_scenario(
        {
            "box": [0.4, 0.08, 0.08],
            "dt": 3e-5,
            "stiffness": 2.5e4,
            "max_speed": 10.0,
            "spheres": [gas],
        }
    )


def control_status(data: bytes) -> None:
    """The status of a server, as ``sphtp status`` and ``sphtp top`` show it."""
    document = read_untrusted([data])
    if document is not None:
        json.dumps(document, indent=2)
        show(document, Console(file=io.StringIO(), width=80))
        assert all(address.is_dialable for address in members_untrusted(document))
        assert all(isinstance(number, int) for number in clients_untrusted(document))
        ahead = wall_offset_untrusted(document.get("wall_time"))
        assert ahead is None or isfinite(ahead)
        reports = [read_status_untrusted("here:1", at, document) for at in (0.0, 2.0)]
        show_places(*reports)


@cache
def _table() -> Spheres:
    return initial_spheres(scenario())


def stun(data: bytes) -> None:
    """A STUN message, at a server, at a node, and from a relay."""
    link = RelayLink(cast("Any", None), TurnServer("host", "user", "password"), ADDRESS)
    assert link.take_channel_untrusted(data) is None
    driver = NatDriver(
        cast("Any", SimpleNamespace(family=socket.AF_INET)),
        Endpoint(Random(1), ChannelSettings()),
        print,
        dict,
    )
    (row,) = driver.take_own_untrusted(0.0, [Datagrams.of(ADDRESS, data)]) or (None,)
    assert row is None or row.data == data
    link.handle(0.0, decode_stun_untrusted(data))
    answer = answer_binding_untrusted(data, ADDRESS)
    assert answer is None or len(answer) <= len(data) + 12


DECODERS: Final[Mapping[str, Decoder]] = {
    "channel-front": front,
    "channel-header": header,
    "channel-frames": frames,
    "channel-packet": packet,
    "channel-runs": runs,
    "channel-connect": connect,
    "channel-accept": accept,
    "channel-refuse": refuse,
    "request": request,
    "group-message": group_message,
    "announcement": announced,
    "shared-memory": shared_memory,
    "stun": stun,
    "shared-segment": shared_segment,
    "shared-message": shared_message,
    "control-message": control_message,
    "control-intake": control_intake,
    "control-status": control_status,
    "messages": messages,
    "message": message,
    "messages-plain": plain_messages,
    "message-array": array,
    "message-in-bits": bit_message,
    "message-inflated": inflated,
    "simulation-spheres": spheres,
    "simulation-slab": slab,
    "simulation-frame": frame,
    "registry-stored": stored,
    **REPORTS,
    **STREAMS,
}
