"""The single entry for bytes from the bus, which decodes them into typed messages."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sphtp.core.control import client_messages, server_messages
from sphtp.core.control.codec import HEADER, MAX_MESSAGE
from sphtp.core.control.counters import ControlCounters, Count
from sphtp.core.control.server_messages import AnyMessage, Known
from sphtp.core.control.vocabulary import (
    EVERYBODY,
    USER_COMMANDS,
    Command,
    DataId,
    is_client_id,
)
from sphtp.errors import RemoteError, WireError, untrusted

Readers = Mapping[int, Callable[[bytes], AnyMessage]]
RecordReaders = Mapping[int, Callable[[bytes, Known], AnyMessage]]

_CLIENT: Readers = client_messages.READERS
_SERVER: Readers = server_messages.READERS
_MEMBER: Readers = {**server_messages.READERS, **server_messages.MEMBER_READERS}
_SERVER_RECORDS: RecordReaders = server_messages.RECORD_READERS
_MEMBER_RECORDS: RecordReaders = {**_SERVER_RECORDS, **server_messages.MEMBER_RECORD_READERS}
_TO_ALL = EVERYBODY.to_bytes(4, "little")
_LIST = Command.PEERS.to_bytes(2, "little") + DataId.PART.to_bytes(2, "little")
"""Command and first parameter of a message with a part of a list. Messages with single records
have no such parameter.
"""
_NOBODY: Known = MappingProxyType({})


class MessageReader:
    """The decoder of the messages that a client, or a server, may receive.

    It drops and counts all others. It does not decode a record again that equals the ``known``
    record with its id.
    """

    __slots__ = ("_counters", "_for_client", "_known", "acked", "skips_lists")

    def __init__(
        self, counters: ControlCounters, *, for_client: bool, known: Known = _NOBODY
    ) -> None:
        self._counters = counters
        self._for_client = for_client
        self._known = known
        self.skips_lists = False
        """True to drop lists for all clients without decoding, because this side needs none."""
        self.acked = b""
        """The encoded ``ACKED`` with this client's id and nonce; empty before it draws an id.

        Of an ACK for many, nothing else is decoded. If n clients start at once, each receives about
        n acknowledgements, and to decode them took most of the processor time of the start.
        """

    def take(self, data: bytes) -> AnyMessage | None:
        """Decode and return a message. Return None for one that was dropped.

        Dropped messages are counted, except lists while ``skips_lists`` is set, and ACKs for many
        other clients.
        """
        if self.skips_lists and data[:4] == _TO_ALL and data[8:12] == _LIST:
            return None
        try:
            return self._read_untrusted(data)
        except RemoteError:
            oversize = len(data) > MAX_MESSAGE
            self._counters.add(Count.OVERSIZE if oversize else Count.MALFORMED)
            return None

    @untrusted
    def _read_untrusted(self, data: bytes) -> AnyMessage | None:
        # Check the header first. Then the decoder of the command reads the parameters.
        if not HEADER.size <= len(data) <= MAX_MESSAGE:
            raise WireError(f"a message of {len(data)} bytes")
        simulation, sender, command = HEADER.unpack_from(data)
        is_server = not sender & 1
        # A client's simulation id is its own; 0 and 1 belong to nobody.
        if sender <= 1 or (not is_server and (self._for_client or simulation != sender)):
            self._counters.add(Count.FOREIGN)
            return None
        if self.acked and command == Command.ACK and not is_client_id(simulation):
            # The parameter contains 95 random bits, so its bytes stand nowhere else by chance.
            if self.acked not in data:
                return None
            data = data[: HEADER.size] + self.acked
        if command >= USER_COMMANDS:
            if is_server:
                return server_messages.read_user(data)
            return client_messages.read_user(data)
        if not is_server:
            readers, record_readers = _CLIENT, None
        elif self._for_client:
            readers, record_readers = _SERVER, _SERVER_RECORDS
        else:
            readers, record_readers = _MEMBER, _MEMBER_RECORDS
        if (reader := readers.get(command)) is not None:
            return reader(data)
        if record_readers and (record_reader := record_readers.get(command)) is not None:
            return record_reader(data, self._known)
        self._counters.add(Count.UNKNOWN_COMMAND)
        return None
