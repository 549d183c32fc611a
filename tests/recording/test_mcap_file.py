"""Recordings as files: whole, cut at any byte, damaged; and read by MCAP's own reader."""

import json
from dataclasses import dataclass
from io import BytesIO
from random import Random

import pytest
from mcap.reader import make_reader
from mcap.records import Chunk
from mcap.stream_reader import StreamReader, breakup_chunk

from sphtp_client.recording.mcap_file import RecordingWriter, read_recording
from sphtp_client.recording.values import (
    RecordingError,
    encode_message,
    message_tree,
    schema_of,
)
from tests.soaked import soaked


@dataclass
class Written:
    """A recording, and what MCAP's own reader finds in it."""

    data: bytes
    ends: list[int]
    """The bytes behind the magic and behind each record."""
    counts: list[int]
    """The messages that are whole there."""


def write(messages: int, *, chunk_bytes: int) -> Written:
    file = BytesIO()
    writer = RecordingWriter(file, chunk_bytes=chunk_bytes)
    writer.add_metadata("sphtp.recording", {"version": "1"})
    schema = schema_of(message_tree({"step": 0}))
    channels = [
        writer.add_channel(f"state/{peer}", schema, {"name": "state", "peer": peer})
        for peer in ("ada", "bob")
    ]
    for number in range(messages):
        time = number * 1_000_000
        writer.add_message(channels[number % 2], number, time, encode_message({"step": number}))
    writer.close()
    file.seek(0)
    ends, counts = [8], [0]
    for record in StreamReader(file, emit_chunks=True).records:
        # The last one reads the magic behind it.
        ends.append(min(file.tell(), len(file.getvalue()) - 8))
        more = len(breakup_chunk(record)) if isinstance(record, Chunk) else 0
        counts.append(counts[-1] + more)
    return Written(file.getvalue(), ends, counts)


def whole_messages(written: Written, cut: int) -> int:
    return max(
        (count for end, count in zip(written.ends, written.counts, strict=True) if end <= cut),
        default=0,
    )


def steps(data: bytes) -> list[int]:
    return [message.value()["step"] for message in read_recording(data).messages()]


def test_a_recording_comes_back_and_is_mcap():
    written = write(1000, chunk_bytes=4096)
    recording = read_recording(written.data)
    assert recording.cut is None
    assert steps(written.data) == list(range(1000))
    assert recording.metadata == [("sphtp.recording", {"version": "1"})]
    assert [(it.name, it.peer) for it in recording.channels.values()] == [
        ("state", "ada"), ("state", "bob"),
    ]  # fmt: skip
    assert (recording.begin, recording.end) == (0, 999_000_000)
    reader = make_reader(BytesIO(written.data))
    found = [json.loads(message.data)["step"] for _, _, message in reader.iter_messages()]
    assert found == list(range(1000))
    summary = reader.get_summary()
    assert summary is not None
    assert summary.statistics is not None
    assert summary.statistics.message_count == 1000
    assert len(summary.chunk_indexes) == summary.statistics.chunk_count > 5
    # It finds the place by the index.
    later = [m.sequence for _, _, m in reader.iter_messages(starting_at=900_000_000)]
    assert later == list(range(900, 1000))


def test_a_small_recording_that_is_cut_at_any_byte_is_read_to_its_last_whole_record():
    written = write(16, chunk_bytes=300)
    for cut in range(len(written.data)):
        recording = read_recording(written.data[:cut])
        found = [message.value()["step"] for message in recording.messages()]
        assert found == list(range(whole_messages(written, cut)))
        last = max((end for end in written.ends if end <= cut), default=cut)
        assert recording.cut is not None
        assert f"ends at byte {last}, and {cut - last} " in recording.cut


@pytest.mark.parametrize("messages", [8_000, *soaked([40_000])])
def test_a_large_recording_that_is_cut_anywhere_is_read_so_too(messages, seed):
    written, random = write(messages, chunk_bytes=8_192), Random(seed)
    whole = len(written.data)
    for cut in (random.randrange(whole) for _ in range(messages // 160)):
        recording, count = read_recording(written.data[:cut]), whole_messages(written, cut)
        assert recording.cut is not None
        # Of the last chunk that is whole: to read all of them each time takes minutes.
        found = [message.number for message in recording.messages(begin=recording.end)]
        assert found == [count - 1] * bool(count)
        assert recording.end == max(count - 1, 0) * 1_000_000
    half = whole // 2
    assert steps(written.data[:half]) == list(range(whole_messages(written, half)))


def test_messages_of_a_time_are_found_without_those_before_and_after():
    written = write(1000, chunk_bytes=1000)
    found = read_recording(written.data).messages(500_000_000, 509_000_000)
    assert [message.number for message in found] == list(range(500, 510))


def test_a_damaged_chunk_ends_the_recording_and_is_named():
    written = write(1000, chunk_bytes=4096)
    chunks = [at for at, count in enumerate(written.counts) if count and at]
    place = written.ends[chunks[3]] - 30
    data = bytearray(written.data)
    data[place] ^= 0xFF
    recording = read_recording(bytes(data))
    found = list(recording.messages())
    assert len(found) < 1000
    assert [message.number for message in found] == list(range(len(found)))
    assert recording.cut is not None
    assert "damaged" in recording.cut


def test_any_damage_is_either_told_or_harmless(seed):
    written, random = write(60, chunk_bytes=300), Random(seed)
    for _ in range(300):
        data = bytearray(written.data)
        data[random.randrange(8, len(data))] ^= 1 << random.randrange(8)
        recording = read_recording(bytes(data))
        found = [message.number for message in recording.messages()]
        # A time that a chunk promises wrongly, and a name, are not under its checksum.
        assert found == list(range(len(found))) or recording.cut


def test_what_is_no_recording_is_refused():
    with pytest.raises(RecordingError, match="does not begin as MCAP does"):
        read_recording(b"a text file")
