"""The messages between members of a group: contributions, and changes of the membership.

A contribution is the most frequent message, and often large. It is a byte 0, the number of its step
u64, and a value as msgpack, which the machine never unpacks. Any other message is a byte 1 and a
msgpack list: the number of its type, then its fields in order.
"""

from collections.abc import Callable, Mapping
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from sphtp.core.group.seats import Key, Seat
from sphtp.core.packing import MALFORMED, Parts, pack, unpack
from sphtp.errors import RemoteError

VERSION: Final = 1
"""The version of this protocol, which members compare."""

CONTRIBUTION: Final = Struct("<BQ")
"""The head of a contribution: 0, and the number of its step."""

contribution_head: Final[Callable[[int], bytes]] = partial(CONTRIBUTION.pack, 0)
"""Returns the head of a contribution to a step, the bytes before its msgpack."""

MOST_ADDED: Final = 64
"""The most bytes that a HELD or a SNAPSHOT adds to its contribution or state."""

_CONTROL: Final = b"\x01"
_MOST_STEPS: Final = 1 << 62
_MOST_COUNT: Final = 1 << 63
"""The largest step, round or epoch in a field; larger than ``_MOST_STEPS``, since a field may have
a later step than a contribution.
"""

_MOST_TEXT: Final = 1024
_MOST_ITEMS: Final = 1 << 16

Contribution: TypeAlias = bytes | memoryview | Parts
"""A contribution with its head: a received one, perhaps in memory that its sender can still
change, or this member's own, in parts."""


class GroupHello(NamedTuple):
    """HELLO: the identity and the terms of the sender.

    It is the first message of each channel. After a change, members send it again to all clients
    that are not in the group.
    """

    version: int
    group: str
    member: Key
    name: str
    on_death: str
    size: int
    has_state: bool
    founder: Key | None
    """The founder of the sender's group; None while the sender is in no group."""


class JoinRequest(NamedTuple):
    """JOIN: the connections of a client that wants to join.

    ``known`` are the clients from which the sender has a HELLO, and ``connected`` those of them
    that have the sender's HELLO as well. The sender sends JOIN to all of them whenever these lists
    change. A member answers a HELLO with JOIN, too: its ``known`` is the receiver alone.
    """

    known: tuple[Key, ...]
    connected: tuple[Key, ...]


class FlushRequest(NamedTuple):
    """FLUSH: a request to begin no step, to accept nothing from ``removed``, and to send STATE."""

    round: int
    removed: tuple[Key, ...]


class FlushState(NamedTuple):
    """STATE: the answer to FLUSH, with the seats and the progress of the sender.

    The sender's HELDs come before it.
    """

    round: int
    epoch: int
    begun: int
    """The last step that the sender has begun; before its first step, the step before that."""
    seats: tuple[Seat, ...]
    heights: tuple[tuple[Key, int], ...]
    """The step of the last contribution that the sender has from each removed or ended member."""
    founder: Key | None


class Install(NamedTuple):
    """INSTALL: the seats from now on.

    HELDs come before it, with contributions of removed members that the receiver may lack.
    """

    round: int
    epoch: int
    founder: Key
    seats: tuple[Seat, ...]


class HeldContribution(NamedTuple):
    """HELD: a contribution of a removed or ended member that another member may still need.

    Each contribution has a message of its own: together they may exceed the limit of a message.
    """

    member: Key
    contribution: bytes


class Abandon(NamedTuple):
    """ABANDON: the sender has ended its attempt to found a group."""

    round: int


class Admitted(NamedTuple):
    """ADMITTED: the sender has installed the seats that include the receiver, a newcomer."""

    epoch: int


class Complaint(NamedTuple):
    """COMPLAINT, to the coordinator: channels to these members were lost, here or elsewhere."""

    keys: tuple[Key, ...]


class Exclusion(NamedTuple):
    """EXCLUDED: the group goes on without the receiver."""

    why: str


class Dying(NamedTuple):
    """DYING: the program of the sender has failed; it counts as dead."""

    why: str


class Leaving(NamedTuple):
    """LEAVE: the sender contributes to no step from this one on."""

    step: int


class LeaveReleased(NamedTuple):
    """RELEASED: the sender needs no more contributions from the receiver, which leaves."""

    step: int


class StateSnapshot(NamedTuple):
    """SNAPSHOT: the state of the simulation at the beginning of the receiver's first step."""

    step: int
    payload: bytes


class StepReached(NamedTuple):
    """PROGRESS: the sender's present step, to members to which it does not contribute.

    A member that is past the first step of a newcomer, so that it cannot give it the state, sends
    PROGRESS to all.
    """

    step: int


GroupMessage = (
    GroupHello | JoinRequest | FlushRequest | FlushState | Install | Abandon | Admitted | Complaint
    | Exclusion | Dying | Leaving | LeaveReleased | StateSnapshot | StepReached | HeldContribution
)  # fmt: skip


def contribution_bytes(step: int, data: Contribution) -> bytes:
    """Return a copy of a contribution, to pass on to other members.

    The head is made anew: the contribution's sender may have changed the memory with it, and a
    false head would count as an error of this member.
    """
    whole = data.join() if isinstance(data, Parts) else bytes(data)
    return contribution_head(step) + whole[CONTRIBUTION.size :]


def step_of_untrusted(data: bytes | memoryview) -> int | None:
    """Return the step of a contribution; None for any other message.

    Raises ``RemoteError`` if the contribution has no value, or its step is too large.
    """
    if not data or data[0]:
        return None
    if len(data) <= CONTRIBUTION.size:
        raise RemoteError(f"a contribution of {len(data)} bytes")
    step: int = CONTRIBUTION.unpack_from(data)[1]
    if step > _MOST_STEPS:
        raise RemoteError(f"a contribution to step {step}")
    return step


def encode_group_message(message: GroupMessage) -> bytes:
    """Return the bytes of a message other than a contribution."""
    return pack([_NUMBERS[type(message)], *message], _CONTROL)


def decode_group_message_untrusted(data: bytes | memoryview) -> GroupMessage:
    """Decode a message other than a contribution. Raises ``RemoteError`` if it is malformed."""
    data = bytes(data)
    if data[:1] != _CONTROL:
        raise RemoteError("no message of a group")
    try:
        kind, *fields = unpack(data, 1)
    except MALFORMED as error:
        raise RemoteError(f"a message of a group that is no list: {error}") from None
    if type(kind) is not int or not 0 <= kind < len(_MESSAGES):
        raise RemoteError(f"a message of a group of kind {kind!r}")
    of, readers = _MESSAGES[kind]
    if len(fields) != len(readers):
        raise RemoteError(f"{of.__name__} with {len(fields)} fields")
    read = [reader(field) for reader, field in zip(readers, fields, strict=True)]
    message: GroupMessage = of(*read)
    return message


# Readers of fields. Each raises RemoteError.


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_COUNT:
        raise RemoteError(f"{value!r} is no number of steps or rounds")
    return value


def _step_or_none_yet(value: Any) -> int:
    return -1 if value == -1 and type(value) is int else _count(value)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise RemoteError(f"{value!r} is no number of 64 bits")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > _MOST_TEXT:
        raise RemoteError("a field that is no text, or too long")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise RemoteError(f"{value!r} is neither true nor false")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise RemoteError("a field that is not bytes")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list or len(value) > _MOST_ITEMS:
        raise RemoteError("a field that is no list, or too long")
    return value


def _pair(value: Any) -> tuple[Any, Any]:
    if type(value) is not list or len(value) != 2:
        raise RemoteError("a field that is no pair")
    return value[0], value[1]


def _key(value: Any) -> Key:
    first, second = _pair(value)
    return _number(first), _number(second)


def _keys(value: Any) -> tuple[Key, ...]:
    return tuple(map(_key, _list(value)))


def _founder(value: Any) -> Key | None:
    return None if value is None else _key(value)


def _seat(value: Any) -> Seat:
    fields = _list(value)
    if len(fields) != len(Seat._fields):
        raise RemoteError(f"a member of {len(fields)} fields")
    number, incarnation, name, start, place, has_state, end, has_left = fields
    step, first = _pair(place)
    return Seat(
        _number(number),
        _number(incarnation),
        _text(name),
        _count(start),
        (_count(step), _number(first)),
        _flag(has_state),
        None if end is None else _count(end),
        _flag(has_left),
    )


def _seats(value: Any) -> tuple[Seat, ...]:
    return tuple(map(_seat, _list(value)))


def _heights(value: Any) -> tuple[tuple[Key, int], ...]:
    pairs = map(_pair, _list(value))
    return tuple((_key(key), _step_or_none_yet(height)) for key, height in pairs)


def _contribution(value: Any) -> bytes:
    data = _bytes(value)
    if step_of_untrusted(data) is None:
        raise RemoteError("what is held is no contribution")
    return data


Reader = Callable[[Any], Any]

_MESSAGES: Final[tuple[tuple[type[Any], tuple[Reader, ...]], ...]] = (
    (GroupHello, (_count, _text, _key, _text, _text, _count, _flag, _founder)),
    (JoinRequest, (_keys, _keys)),
    (FlushRequest, (_count, _keys)),
    (FlushState, (_count, _count, _step_or_none_yet, _seats, _heights, _founder)),
    (Install, (_count, _count, _key, _seats)),
    (Abandon, (_count,)),
    (Admitted, (_count,)),
    (Complaint, (_keys,)),
    (Exclusion, (_text,)),
    (Leaving, (_count,)),
    (LeaveReleased, (_count,)),
    (StateSnapshot, (_count, _bytes)),
    (StepReached, (_count,)),
    (Dying, (_text,)),
    (HeldContribution, (_key, _contribution)),
)
_NUMBERS: Final[Mapping[type[Any], int]] = {of: number for number, (of, _) in enumerate(_MESSAGES)}
