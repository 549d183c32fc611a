"""Messages as bytes: three numbers, then any number of parameters (seed, "Message structure")."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sphtp.core.control.vocabulary import USER_COMMANDS, USER_PARAMETERS
from sphtp.errors import MessageTooLargeError, StateError, WireError, untrusted

MAX_MESSAGE = 65536
"""Bytes of the largest message; larger ones are dropped."""

MAX_PARAMETER = MAX_NUMBER = (1 << 16) - 1
"""Bytes of a parameter's data, and the highest number of a parameter or a command."""

_HEADER = struct.Struct("<IIH")
_FRONT = struct.Struct("<HH")
_new_tuple = tuple.__new__


class Parameter(NamedTuple):
    """One data parameter; a message may hold several with the same id, and their order counts."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """One message: simulation u32, sender u32, command u16, then (id u16, length u16, data)*."""

    simulation: int
    sender: int
    command: int
    parameters: tuple[Parameter, ...] = ()

    def encode(self) -> bytes:
        """Return the bytes.

        Raises ``MessageTooLargeError`` when a parameter or the whole is too large, ``WireError``
        when a number is.
        """
        try:
            parts = [_HEADER.pack(self.simulation, self.sender, self.command)]
            for number, data in self.parameters:
                if len(data) > MAX_PARAMETER:
                    raise MessageTooLargeError(
                        f"a parameter of {len(data)} bytes; at most {MAX_PARAMETER} fit"
                    )
                parts += (_FRONT.pack(number, len(data)), data)
        except struct.error as error:
            raise WireError(f"a number of a message is too large: {error}") from error
        whole = b"".join(parts)
        if len(whole) > MAX_MESSAGE:
            raise MessageTooLargeError(f"a message of {len(whole)} bytes is over {MAX_MESSAGE}")
        return whole


def check_user_message(command: int, parameters: Iterable[Parameter]) -> None:
    """Raise ``StateError`` when a command of the application uses numbers of the protocol.

    Or numbers that do not exist.
    """
    _check_number("command", command, USER_COMMANDS)
    for parameter in parameters:
        _check_number("parameter", parameter.id, USER_PARAMETERS)


def _check_number(what: str, number: int, lowest: int) -> None:
    if number < lowest:
        raise StateError(f"{what} {number:#06x} belongs to the protocol")
    if number > MAX_NUMBER:
        raise StateError(f"{what} {number:#x} is over {MAX_NUMBER:#06x}")


@untrusted
def decode_message_untrusted(data: bytes) -> Message:
    """Read a message. Raises ``RemoteError`` when a field is cut off or the whole is too large."""
    return decode_message(data)


def decode_message(data: bytes) -> Message:
    """Do the same for a caller that turns ``WireError`` into ``RemoteError`` itself."""
    if len(data) > MAX_MESSAGE:
        raise WireError(f"a message of {len(data)} bytes is over {MAX_MESSAGE}")
    size, start = len(data), _HEADER.size
    if size < start:
        raise WireError(f"{size} bytes are no message")
    simulation, sender, command = _HEADER.unpack_from(data)
    parameters: list[Parameter] = []
    while start < size:
        begin = start + _FRONT.size
        if begin > size:
            raise WireError("a parameter is cut off")
        number, length = _FRONT.unpack_from(data, start)
        start = begin + length
        if start > size:
            raise WireError("a parameter is cut off")
        # A named tuple without its constructor: a list of peers has a thousand parameters.
        parameters.append(_new_tuple(Parameter, (number, data[begin:start])))
    return Message(simulation, sender, command, tuple(parameters))
