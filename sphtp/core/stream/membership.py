"""Membership: messages by which a receiver joins a source, on a channel between their nodes.

JOIN       kind u8, version u8, topic (length u8, text), session u32,
           settled u64                                                receiver to source
WELCOME    kind u8, session u32, receiver u32, topic u16, lead u64, trail u64, next u64,
           reach u32, history port u16,
           group (length u8, text), port u16, seal                    source to receiver
REFUSED    kind u8, text                                              source to receiver
KEY        kind u8, key number u8, key 32, first u64                  source to receiver
END        kind u8, lead u64, trail u64, next u64                     source to receiver

A seal is a u8: 0 for none, or 1, followed by key number u8, key 32, first u64, receiver's key 32.
Lead and settled are sent as one more than their values. Either side leaves by closing the channel.
A source that ends sends END before it closes the channel; a source that closes it without END has
vanished. Only sealed nodes send keys, and their channels are sealed, too.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from sphtp.core.printable import printable
from sphtp.core.schema import Schema
from sphtp.core.stream.wire import Window
from sphtp.core.wire import Reader, Writer, decode_by_kind_untrusted, encode_by_kind
from sphtp.errors import RemoteError

VERSION: Final = 2
STREAMS: Final = "sphtp.Streams: version 2"
"""The first line of the schema of a channel for membership."""

KEY_SIZE: Final = 32
MOST_TEXT: Final = 1000
"""The most bytes of a refusal that a receiver decodes."""


def membership_schema(types: Schema) -> Schema:
    """Return the schema of channels for membership of a node whose messages have these types.

    So a node refuses a receiver that could not decode the messages of its streams.
    """
    return Schema([STREAMS, *types.lines])


class MemberKind(IntEnum):
    """The first byte of a membership message."""

    JOIN = 1
    WELCOME = 2
    REFUSED = 3
    KEY = 4
    END = 5


class StreamKey(NamedTuple):
    """A key that seals a source's datagrams, from the one with the counter ``first`` on."""

    number: int
    key: bytes
    first: int

    def __repr__(self) -> str:
        return f"StreamKey(number={self.number}, first={self.first})"


class Join(NamedTuple):
    """JOIN: a receiver requests a topic.

    A receiver that rejoins names its ``session``, else 0. It has received or given up all datagrams
    up to ``settled``.
    """

    topic: str
    session: int = 0
    settled: int = -1


class Welcome(NamedTuple):
    """WELCOME: the parameters of the session for a new receiver.

    ``topic`` is the number of the topic in the session. The message ``next`` is the first that a
    new receiver gets as a whole; for a receiver that rejoins it is the first that has not left
    completely. The source may be ``reach`` bytes ahead, 0 for no limit. The history is served at
    the TCP port ``history`` of the source's host; 0 means that there is none. ``group`` and
    ``port`` are the address of a multicast group, empty and 0 for unicast. ``key`` seals the
    source's datagrams, ``receiver_key`` the receiver's; they are None and empty in the clear.
    """

    session: int
    receiver: int
    topic: int
    window: Window
    next: int
    reach: int = 0
    history: int = 0
    group: str = ""
    port: int = 0
    key: StreamKey | None = None
    receiver_key: bytes = b""

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._asdict().items() if "key" not in name}
        return f"Welcome({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class JoinRefused(NamedTuple):
    """REFUSED: the source accepts no more receivers, or no source has the topic.

    ``text`` is the reason.
    """

    text: str


class Closing(NamedTuple):
    """END: the source sends no datagram after ``window.lead``, and has no message from ``next`` on.

    Messages below ``next`` may have waited when the source ended. They never leave, and receivers
    report them as lost.
    """

    window: Window
    next: int


Member = Join | Welcome | JoinRefused | StreamKey | Closing


def encode_member(message: Member) -> bytes:
    """Encode a membership message."""
    return encode_by_kind(message, _ENCODERS)


def decode_member_untrusted(data: bytes) -> Member:
    """Decode a membership message. Raises ``RemoteError`` if it is malformed."""
    return decode_by_kind_untrusted(data, _DECODERS, "streams")


def _encode_join(writer: Writer, join: Join) -> None:
    writer.u8(VERSION).prefixed(join.topic.encode(), Writer.u8)
    writer.u32(join.session).u64(join.settled + 1)


def _decode_join(reader: Reader) -> Join:
    if (version := reader.u8()) != VERSION:
        raise RemoteError(f"version {version} of streams; allowed is {VERSION}")
    return Join(_text(reader.take(reader.u8())), reader.u32(), reader.u64() - 1)


def _encode_welcome(writer: Writer, welcome: Welcome) -> None:
    writer.u32(welcome.session).u32(welcome.receiver).u16(welcome.topic)
    _encode_window(writer, welcome.window)
    writer.u64(welcome.next)
    writer.u32(welcome.reach)
    writer.u16(welcome.history).prefixed(welcome.group.encode(), Writer.u8).u16(welcome.port)
    writer.u8(welcome.key is not None)
    if welcome.key is not None:
        _encode_key(writer, welcome.key)
        writer.raw(welcome.receiver_key)


def _decode_welcome(reader: Reader) -> Welcome:
    session, receiver, topic = reader.u32(), reader.u32(), reader.u16()
    window = _decode_window(reader)
    number, reach = reader.u64(), reader.u32()
    history = reader.u16()
    group, port = _text(reader.take(reader.u8())), reader.u16()
    key = _decode_key(reader) if reader.u8() else None
    receiver_key = reader.take(KEY_SIZE) if key else b""
    if not session:
        raise RemoteError("a session with the number 0")
    return Welcome(
        session,
        receiver,
        topic,
        window,
        number,
        reach,
        history,
        group,
        port,
        key,
        receiver_key,
    )


def _encode_refused(writer: Writer, refused: JoinRefused) -> None:
    writer.raw(refused.text.encode(errors="replace"))


def _decode_refused(reader: Reader) -> JoinRefused:
    return JoinRefused(_text(reader.rest()[:MOST_TEXT]))


def _encode_key(writer: Writer, key: StreamKey) -> None:
    writer.u8(key.number).raw(key.key).u64(key.first)


def _decode_key(reader: Reader) -> StreamKey:
    return StreamKey(reader.u8(), reader.take(KEY_SIZE), reader.u64())


def _encode_closing(writer: Writer, closing: Closing) -> None:
    _encode_window(writer, closing.window)
    writer.u64(closing.next)


def _decode_closing(reader: Reader) -> Closing:
    return Closing(_decode_window(reader), reader.u64())


def _encode_window(writer: Writer, window: Window) -> None:
    # The lead is -1 in an empty window before datagram 0.
    writer.u64(window.lead + 1).u64(window.trail)


def _decode_window(reader: Reader) -> Window:
    window = Window(reader.u64() - 1, reader.u64())
    if window.trail > window.lead + 1:
        raise RemoteError(f"a window from {window.trail} to {window.lead}")
    return window


def _text(data: bytes) -> str:
    return printable(data.decode(errors="replace"))


_ENCODERS: Final[dict[type, tuple[MemberKind, Callable[..., None]]]] = {
    Join: (MemberKind.JOIN, _encode_join),
    Welcome: (MemberKind.WELCOME, _encode_welcome),
    JoinRefused: (MemberKind.REFUSED, _encode_refused),
    StreamKey: (MemberKind.KEY, _encode_key),
    Closing: (MemberKind.END, _encode_closing),
}

_DECODERS: Final[dict[int, Callable[[Reader], Member]]] = {
    MemberKind.JOIN: _decode_join,
    MemberKind.WELCOME: _decode_welcome,
    MemberKind.REFUSED: _decode_refused,
    MemberKind.KEY: _decode_key,
    MemberKind.END: _decode_closing,
}
