"""The single entry for bytes from the bus: typed messages come out, everything else is counted."""

from collections.abc import Callable, Mapping

from sphtp.core.control import client_messages, member_messages, server_messages
from sphtp.core.control.client_messages import ClientMessage
from sphtp.core.control.codec import MAX_MESSAGE, Message, decode_message_untrusted
from sphtp.core.control.counters import Count, Counters
from sphtp.core.control.ids import is_client_id, is_server_id
from sphtp.core.control.member_messages import MemberMessage
from sphtp.core.control.server_messages import ServerMessage
from sphtp.core.control.vocabulary import USER_COMMANDS
from sphtp.errors import RemoteError, untrusted

AnyMessage = ClientMessage | ServerMessage | MemberMessage
Readers = Mapping[int, Callable[[Message], AnyMessage]]

_CLIENT: Readers = client_messages.READERS
_SERVER: Readers = server_messages.READERS
_MEMBER: Readers = {**server_messages.READERS, **member_messages.READERS}


class Intake:
    """Reads what clients hear, or what servers hear, and counts what nobody should say."""

    __slots__ = ("_counters", "_for_client")

    def __init__(self, counters: Counters, *, for_client: bool) -> None:
        self._counters = counters
        self._for_client = for_client

    def take(self, data: bytes) -> AnyMessage | None:
        """Return the message, or None when it was dropped and counted."""
        try:
            message = decode_message_untrusted(data)
            reader = self._reader(message)
            return reader if reader is None else _read_untrusted(reader, message)
        except RemoteError:
            oversize = len(data) > MAX_MESSAGE
            self._counters.add(Count.OVERSIZE if oversize else Count.MALFORMED)
            return None

    def _reader(self, message: Message) -> Callable[[Message], AnyMessage] | None:
        is_server = is_server_id(message.sender)
        if not is_server and not self._from_client(message):
            self._counters.add(Count.FOREIGN)
            return None
        if message.command >= USER_COMMANDS:
            return server_messages.read_user if is_server else client_messages.read_user
        readers = _CLIENT if not is_server else _SERVER if self._for_client else _MEMBER
        reader = readers.get(message.command)
        if reader is None:
            self._counters.add(Count.UNKNOWN_COMMAND)
        return reader

    def _from_client(self, message: Message) -> bool:
        own = is_client_id(message.sender) and message.simulation == message.sender
        return own and not self._for_client


@untrusted
def _read_untrusted(reader: Callable[[Message], AnyMessage], message: Message) -> AnyMessage:
    return reader(message)
