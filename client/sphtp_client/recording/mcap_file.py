"""The file of a recording, in MCAP: a writer, and a reader that also reads incomplete files.

Theory of operation. A file in MCAP is a sequence of records, each with its length in front. The
writer puts messages into chunks of about a second or a mebibyte. It writes a chunk as a whole, with
its checksum and its index, and passes it to the operating system at once. When a recorder is
killed, the unfinished chunk is lost, and no other. At the end stands a summary, which viewers use
to seek.

A killed recorder writes no summary, so the reader does not use it. It goes from record to record by
their lengths, reads channels and metadata, and notes the place and the time span of each chunk. At
an incomplete or damaged record the recording ends, and ``Recording.cut`` describes the place.
Messages are unpacked chunk by chunk, while the caller iterates. Of the library ``mcap`` only the
record types and the unpacking of a chunk are used: its reader takes a short read for a short field,
and its writer ends a chunk only by size.
"""

import json
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple
from zlib import crc32

import zstandard
from mcap.data_stream import ReadDataStream, RecordBuilder
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import (
    Channel,
    Chunk,
    ChunkIndex,
    DataEnd,
    Footer,
    Header,
    MessageIndex,
    Metadata,
    MetadataIndex,
    Schema,
    Statistics,
    SummaryOffset,
)
from mcap.stream_reader import get_chunk_data_stream

from sphtp_client.recording.values import RecordingError, decode_message

MAGIC: Final = b"\x89MCAP0\r\n"
LIBRARY: Final = "sphtp"

CHUNK_BYTES: Final = 1 << 20
"""The size of uncompressed messages, in bytes, at which a chunk is complete."""

NANOSECONDS: Final = 1_000_000_000

_HEAD: Final = struct.Struct("<BQ")
_MESSAGE: Final = struct.Struct("<BQHIQQ")
_IN_MESSAGE: Final = struct.Struct("<HIQQ")
_IN_CHUNK: Final = struct.Struct("<QQQI")
_MOST_PROPERTIES: Final = 1 << 24
"""The largest record of a channel or of metadata, in bytes."""

_WRONG: Final = (McapError, ValueError, struct.error, zstandard.ZstdError, EOFError)


class RecordingWriter:
    """The writer of a recording. ``finish_chunk`` passes all messages to the operating system.

    All methods raise ``OSError`` when the file cannot be written.
    """

    def __init__(self, file: BinaryIO, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._chunk = bytearray()
        # The times and offsets of the chunk's messages, by channel, and the chunk's time span.
        self._places = defaultdict[int, list[tuple[int, int]]](list)
        self._times: tuple[int, int] | None = None
        self._schemas: list[Schema] = []
        self._channels: list[Channel] = []
        self._chunks: list[ChunkIndex] = []
        self._metadata: list[MetadataIndex] = []
        self._counts = defaultdict[int, int](int)
        self._span: tuple[int, int] | None = None
        self._position = 0
        self._write(MAGIC)
        self._write_records(Header(profile="", library=LIBRARY))
        self._file.flush()

    @property
    def pending(self) -> int:
        """The size of the messages that are not in the file yet, in bytes."""
        return len(self._chunk)

    @property
    def size(self) -> int:
        """The size of the file so far, in bytes."""
        return self._position

    @property
    def messages(self) -> int:
        """The number of messages written so far, those of the unfinished chunk included."""
        return sum(self._counts.values())

    def add_channel(
        self, topic: str, schema: Mapping[str, Any], metadata: Mapping[str, str]
    ) -> int:
        """Add a channel of JSON messages with a JSON Schema; return its id."""
        number = len(self._channels) + 1
        text = json.dumps(schema).encode()
        self._schemas.append(Schema(id=number, name=topic, encoding="jsonschema", data=text))
        self._channels.append(
            Channel(
                id=number,
                topic=topic,
                message_encoding="json",
                metadata=dict(metadata),
                schema_id=number,
            )
        )
        self._write_records(self._schemas[-1], self._channels[-1])
        return number

    def add_message(self, channel: int, number: int, time: int, data: bytes) -> None:
        """Add a message to the chunk, with its number modulo 2^32 and its time in nanoseconds."""
        chunk = self._chunk
        self._places[channel].append((time, len(chunk)))
        chunk += _MESSAGE.pack(
            Opcode.MESSAGE, _IN_MESSAGE.size + len(data), channel, number & 0xFFFFFFFF, time, time
        )
        chunk += data
        first, last = self._times or (time, time)
        self._times = min(first, time), max(last, time)
        self._counts[channel] += 1
        if len(chunk) >= self._chunk_bytes:
            self.finish_chunk()

    def add_metadata(self, name: str, metadata: Mapping[str, str]) -> None:
        """Write a record of metadata to the file at once."""
        start = self._position
        self._write_records(Metadata(name=name, metadata=dict(metadata)))
        self._file.flush()
        self._metadata.append(MetadataIndex(start, self._position - start, name))

    def finish_chunk(self) -> None:
        """Write the chunk, and pass it to the operating system."""
        if self._times is None:
            return
        (first, last), data = self._times, bytes(self._chunk)
        compressed = self._compressor.compress(data)
        start = self._position
        self._write_records(
            Chunk(
                compression="zstd",
                data=compressed,
                message_start_time=first,
                message_end_time=last,
                uncompressed_crc=crc32(data),
                uncompressed_size=len(data),
            )
        )
        length, offsets = self._position - start, {}
        for channel, places in self._places.items():
            offsets[channel] = self._position
            self._write_records(MessageIndex(channel, places))
        self._file.flush()
        self._chunks.append(
            ChunkIndex(
                chunk_length=length,
                chunk_start_offset=start,
                compression="zstd",
                compressed_size=len(compressed),
                message_start_time=first,
                message_end_time=last,
                message_index_length=self._position - start - length,
                message_index_offsets=offsets,
                uncompressed_size=len(data),
            )
        )
        begin, end = self._span or self._times
        self._span = min(begin, first), max(end, last)
        self._chunk.clear()
        self._places.clear()
        self._times = None

    def close(self) -> None:
        """Write the last chunk, and the summary. The file stays open."""
        self.finish_chunk()
        self._write_records(DataEnd(data_section_crc=0))
        first, last = self._span or (0, 0)
        statistics = Statistics(
            attachment_count=0,
            channel_count=len(self._channels),
            channel_message_counts=dict(self._counts),
            chunk_count=len(self._chunks),
            message_count=self.messages,
            message_start_time=first,
            message_end_time=last,
            metadata_count=len(self._metadata),
            schema_count=len(self._schemas),
        )
        groups = (
            (Opcode.SCHEMA, self._schemas),
            (Opcode.CHANNEL, self._channels),
            (Opcode.STATISTICS, [statistics]),
            (Opcode.CHUNK_INDEX, self._chunks),
            (Opcode.METADATA_INDEX, self._metadata),
        )
        start, summary, offsets = self._position, RecordBuilder(), list[SummaryOffset]()
        for opcode, records in groups:
            at = summary.count
            for record in records:
                record.write(summary)
            if summary.count > at:
                offsets.append(SummaryOffset(opcode, start + at, summary.count - at))
        offset_start = start + summary.count
        for offset in offsets:
            offset.write(summary)
        self._write(summary.end())
        # Zero for a checksum means that there is none.
        self._write_records(Footer(start, offset_start, summary_crc=0))
        self._write(MAGIC)
        self._file.flush()

    def _write_records(self, *records: Any) -> None:
        builder = RecordBuilder()
        for record in records:
            record.write(builder)
        self._write(builder.end())

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._position += len(data)


@dataclass(frozen=True, slots=True)
class RecordedChannel:
    """The channel in MCAP of one source and topic, or of one member of a group."""

    id: int
    topic: str
    """The topic in MCAP: ``name``, a slash, and ``peer``, in a file of ``sphtp record``."""
    encoding: str
    metadata: Mapping[str, str]

    @property
    def kind(self) -> str:
        """``"topic"``, ``"stream"`` or ``"group"``; ``"topic"`` in a file of another program."""
        return self.metadata.get("kind", "topic")

    @property
    def name(self) -> str:
        """The topic of the source, or the name of the group."""
        return self.metadata.get("name", self.topic)

    @property
    def peer(self) -> str:
        """The name of the peer, or its id in hexadecimal; host and port of a stream; or empty."""
        return self.metadata.get("peer", "")


class RecordedMessage(NamedTuple):
    """A message of a recording. ``time`` is the cluster's time in nanoseconds.

    ``number`` is the number of the message in its source modulo 2^32, or the step of a group.
    """

    channel: RecordedChannel
    number: int
    time: int
    data: bytes

    def value(self) -> Any:
        """Return the value that was sent. Raises ``RecordingError`` if it cannot be decoded."""
        if self.channel.encoding != "json":
            encoding = self.channel.encoding
            raise RecordingError(f"{self.channel.topic}: messages in {encoding!r}, not in JSON")
        return decode_message(self.data)


class ChunkPlace(NamedTuple):
    """The offset and length of a chunk in bytes, and its first and last time in nanoseconds."""

    offset: int
    length: int
    first: int
    last: int


@dataclass
class Recording:
    """A recording, up to its first incomplete or damaged record. Made by ``read_recording``."""

    source: Path | bytes
    channels: dict[int, RecordedChannel] = field(default_factory=dict)
    metadata: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """The name and content of each record of metadata, in order."""
    cut: str | None = None
    """A sentence on the place where the file is incomplete or damaged; None if none was found."""
    chunks: list[ChunkPlace] = field(default_factory=list)
    """The places of the chunks in the file, in order."""

    @property
    def begin(self) -> int:
        """The time of the first message, in nanoseconds; 0 if there is none."""
        return min((chunk.first for chunk in self.chunks), default=0)

    @property
    def end(self) -> int:
        """The time of the last message, in nanoseconds; 0 if there is none."""
        return max((chunk.last for chunk in self.chunks), default=0)

    def messages(
        self, begin: int | None = None, end: int | None = None
    ) -> Iterator[RecordedMessage]:
        """Iterate over the messages from ``begin`` to ``end``, in the order of the file.

        Both are in nanoseconds of the cluster's time, and included; None sets no limit. Chunks
        outside are not unpacked. A damaged chunk ends the iteration, and sets ``cut``.
        """
        with _open(self.source) as file:
            for chunk in self.chunks:
                if (end is not None and chunk.first > end) or (
                    begin is not None and chunk.last < begin
                ):
                    continue
                try:
                    messages = list(self._unpack(file, chunk))
                except _WRONG as error:
                    self.cut = f"the chunk at byte {chunk.offset} is damaged: {error}"
                    return
                for message in messages:
                    if (begin is None or message.time >= begin) and (
                        end is None or message.time <= end
                    ):
                        yield message

    def _unpack(self, file: BinaryIO, place: ChunkPlace) -> Iterator[RecordedMessage]:
        file.seek(place.offset + _HEAD.size)
        content = file.read(place.length)
        chunk = Chunk.read(ReadDataStream(BytesIO(content)))
        stream, size = get_chunk_data_stream(chunk, validate_crc=True)
        data, at = stream.read(size), 0
        while at < size:
            opcode, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if opcode == Opcode.CHANNEL:
                self.add_channel(data[at : at + length])
            elif opcode == Opcode.MESSAGE:
                number, sequence, time, _ = _IN_MESSAGE.unpack_from(data, at)
                if number not in self.channels:
                    raise ValueError(f"a message of channel {number}, which is not described")
                body = data[at + _IN_MESSAGE.size : at + length]
                yield RecordedMessage(self.channels[number], sequence, time, body)
            at += length

    def add_channel(self, content: bytes) -> None:
        """Add the channel that a record describes."""
        channel = Channel.read(ReadDataStream(BytesIO(content)))
        self.channels[channel.id] = RecordedChannel(
            channel.id, channel.topic, channel.message_encoding, channel.metadata
        )


def read_recording(source: Path | bytes) -> Recording:
    """Read a recording, from a file or from its content, up to its first incomplete record.

    Raises ``RecordingError`` if it does not begin as a file in MCAP does, and ``OSError`` if the
    file cannot be read.
    """
    recording = Recording(source)
    with _open(source) as file:
        size = file.seek(0, SEEK_END)
        file.seek(0)
        magic = file.read(len(MAGIC))
        if not MAGIC.startswith(magic):
            name = source if isinstance(source, Path) else "this"
            raise RecordingError(f"{name} is no recording: it does not begin as MCAP does")
        position, is_ended = len(magic), False
        while not is_ended:
            file.seek(position)
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                break
            opcode, length = _HEAD.unpack(head)
            if position + _HEAD.size + length > size:
                break
            try:
                _read_record(recording, file, opcode, position, length)
            except _WRONG as error:
                recording.cut = f"the record at byte {position} of {size} is damaged: {error}"
                return recording
            position += _HEAD.size + length
            is_ended = opcode == Opcode.FOOTER
        file.seek(position)
        if not is_ended or file.read() != MAGIC:
            left = size - position
            recording.cut = (
                f"the file is cut: its last whole record ends at byte {position}, and {left} "
                f"{'byte follows' if left == 1 else 'bytes follow'}"
            )
    return recording


def _open(source: Path | bytes) -> BinaryIO:
    return source.open("rb") if isinstance(source, Path) else BytesIO(source)


def _read_record(
    recording: Recording, file: BinaryIO, opcode: int, position: int, length: int
) -> None:
    if opcode == Opcode.CHUNK:
        first, last, _, _ = _IN_CHUNK.unpack(file.read(_IN_CHUNK.size))
        recording.chunks.append(ChunkPlace(position, length, first, last))
        return
    if opcode not in (Opcode.CHANNEL, Opcode.METADATA):
        return
    if length > _MOST_PROPERTIES:
        raise ValueError(f"it has {length} bytes")
    content = file.read(length)
    if opcode == Opcode.CHANNEL:
        recording.add_channel(content)
    else:
        record = Metadata.read(ReadDataStream(BytesIO(content)))
        recording.metadata.append((record.name, record.metadata))
