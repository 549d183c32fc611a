"""The single entry for bytes from the bus: typed messages come out, everything else is counted."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sphtp.core.control import client_messages, member_messages, server_messages
from sphtp.core.control.client_messages import ClientMessage
from sphtp.core.control.codec import MAX_MESSAGE, Message, decode_message
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.ids import is_client_id, is_server_id
from sphtp.core.control.member_messages import MemberMessage
from sphtp.core.control.server_messages import Known, ServerMessage
from sphtp.core.control.vocabulary import USER_COMMANDS, Command, DataId
from sphtp.errors import RemoteError, untrusted

AnyMessage = ClientMessage | ServerMessage | MemberMessage
Readers = Mapping[int, Callable[[Message], AnyMessage]]
RecordReaders = Mapping[int, Callable[[Message, Known], AnyMessage]]

_CLIENT: Readers = client_messages.READERS
_SERVER: Readers = server_messages.READERS
_MEMBER: Readers = {**server_messages.READERS, **member_messages.READERS}
_SERVER_RECORDS: RecordReaders = server_messages.RECORD_READERS
_MEMBER_RECORDS: RecordReaders = {**_SERVER_RECORDS, **member_messages.RECORD_READERS}
_TO_ALL = bytes(4)
_LIST = Command.PEERS.to_bytes(2, "little") + DataId.PART.to_bytes(2, "little")
"""The command of a list, and its first parameter; news have none such."""
_NOBODY: Known = MappingProxyType({})


class Intake:
    """Reads what clients hear, or what servers hear, and counts what nobody should say.

    Records that are among the ``known`` ones are not decoded again.
    """

    __slots__ = ("_counters", "_for_client", "_known")

    def __init__(self, counters: Counters, *, for_client: bool, known: Known = _NOBODY) -> None:
        self._counters = counters
        self._for_client = for_client
        self._known = known

    def take(self, data: bytes, *, skips_lists: bool = False) -> AnyMessage | None:
        """Return the message, or None when it was dropped and counted.

        With ``skips_lists`` a list that is for everybody is dropped unread: whoever has not asked
        for it had better do something else.
        """
        if skips_lists and data[:4] == _TO_ALL and data[8:12] == _LIST:
            return None
        try:
            return self._read_untrusted(data)
        except RemoteError:
            oversize = len(data) > MAX_MESSAGE
            self._counters.add(Count.OVERSIZE if oversize else Count.MALFORMED)
            return None

    @untrusted
    def _read_untrusted(self, data: bytes) -> AnyMessage | None:
        message = decode_message(data)
        sender = message.sender
        is_server = is_server_id(sender)
        own = message.simulation == sender and is_client_id(sender) and not self._for_client
        if not is_server and not own:
            self._counters.add(Count.FOREIGN)
            return None
        if message.command >= USER_COMMANDS:
            if is_server:
                return server_messages.read_user(message)
            return client_messages.read_user(message)
        if not is_server:
            readers, record_readers = _CLIENT, None
        elif self._for_client:
            readers, record_readers = _SERVER, _SERVER_RECORDS
        else:
            readers, record_readers = _MEMBER, _MEMBER_RECORDS
        if (reader := readers.get(message.command)) is not None:
            return reader(message)
        if record_readers and (record_reader := record_readers.get(message.command)) is not None:
            return record_reader(message, self._known)
        self._counters.add(Count.UNKNOWN_COMMAND)
        return None
