"""What servers say only to each other, with a type per command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sphtp.core.control import fields
from sphtp.core.control.codec import Message
from sphtp.core.control.fields import Gone, Part
from sphtp.core.control.ids import EVERYBODY
from sphtp.core.control.introductions import read_records, write_records
from sphtp.core.control.records import PeerRecord
from sphtp.core.control.server_messages import Known, encode, part_of
from sphtp.core.control.vocabulary import Command


@dataclass(frozen=True, slots=True)
class Registered:
    """Clients that entered or changed."""

    sender: int
    records: tuple[PeerRecord, ...]

    def encode(self) -> bytes:
        """Return the bytes."""
        records = write_records(self.records)
        return encode(EVERYBODY, self.sender, Command.REGISTERED, *records)


@dataclass(frozen=True, slots=True)
class Released:
    """Clients that are no longer registered."""

    sender: int
    gone: tuple[Gone, ...]

    def encode(self) -> bytes:
        """Return the bytes."""
        gone = map(fields.GONE.of, self.gone)
        return encode(EVERYBODY, self.sender, Command.RELEASED, *gone)


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """Tell me all clients."""

    sender: int
    to: int

    def encode(self) -> bytes:
        """Return the bytes."""
        return encode(self.to, self.sender, Command.SNAPSHOT_REQUEST)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A piece of the list of all clients."""

    sender: int
    to: int
    part: Part
    records: tuple[PeerRecord, ...]

    def encode(self) -> bytes:
        """Return the bytes."""
        records = write_records(self.records)
        return encode(self.to, self.sender, Command.SNAPSHOT, *part_of(self.part), *records)


MemberMessage = Registered | Released | SnapshotRequest | Snapshot


def _read_registered(message: Message, known: Known) -> Registered:
    return Registered(message.sender, read_records(message, known))


def _read_released(message: Message) -> Released:
    return Released(message.sender, fields.GONE.every(message))


def _read_snapshot_request(message: Message) -> SnapshotRequest:
    return SnapshotRequest(message.sender, message.simulation)


def _read_snapshot(message: Message, known: Known) -> Snapshot:
    part, records = fields.PART.need(message), read_records(message, known)
    return Snapshot(message.sender, message.simulation, part, records)


READERS: Mapping[int, Callable[[Message], MemberMessage]] = {
    Command.RELEASED: _read_released,
    Command.SNAPSHOT_REQUEST: _read_snapshot_request,
}

RECORD_READERS: Mapping[int, Callable[[Message, Known], MemberMessage]] = {
    Command.REGISTERED: _read_registered,
    Command.SNAPSHOT: _read_snapshot,
}
"""Readers of records, some of which may be known already."""
