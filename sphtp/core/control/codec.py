"""Messages as bytes: three numbers, then any number of parameters (seed, "Message structure")."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sphtp.core.control.vocabulary import USER_COMMANDS, USER_PARAMETERS
from sphtp.core.wire import Reader, Writer
from sphtp.errors import MessageTooLargeError, StateError, WireError, untrusted

MAX_MESSAGE = 65536
"""Bytes of the largest message; larger ones are dropped."""

MAX_PARAMETER = MAX_NUMBER = (1 << 16) - 1
"""Bytes of a parameter's data, and the highest number of a parameter or a command."""


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
        writer = Writer().u32(self.simulation).u32(self.sender).u16(self.command)
        for parameter in self.parameters:
            if len(parameter.data) > MAX_PARAMETER:
                raise MessageTooLargeError(
                    f"a parameter of {len(parameter.data)} bytes; at most {MAX_PARAMETER} fit"
                )
            writer.u16(parameter.id).prefixed(parameter.data, Writer.u16)
        data = writer.finish()
        if len(data) > MAX_MESSAGE:
            raise MessageTooLargeError(f"a message of {len(data)} bytes is over {MAX_MESSAGE}")
        return data


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
    if len(data) > MAX_MESSAGE:
        raise WireError(f"a message of {len(data)} bytes is over {MAX_MESSAGE}")
    reader = Reader(data)
    simulation, sender, command = reader.u32(), reader.u32(), reader.u16()
    parameters = []
    while reader.remaining:
        parameters.append(Parameter(reader.u16(), reader.take(reader.u16())))
    return Message(simulation, sender, command, tuple(parameters))
