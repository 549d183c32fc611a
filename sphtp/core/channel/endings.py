"""The ends of a channel: reasons, and their texts for users."""

from collections.abc import Sequence
from dataclasses import asdict

from sphtp.core.channel.frames import Close
from sphtp.core.channel.handshake import AnswerRejection, Refusal, Refuse
from sphtp.core.channel.lifecycle import Closed, CloseReason, Event, Timer
from sphtp.core.channel.receipts import Outcome
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.datagrams import Address
from sphtp.core.printable import peer_label, printable
from sphtp.core.schema import Schema

CLOSED_HERE = Closed(CloseReason.DONE, "closed by this side", by_peer=False)

# The event of each timer except KEEPALIVE, with the reason and the text of the ending if the event
# ends the channel. ``timed_out`` puts the peer and the settings into the text.
TIMEOUTS: dict[Timer, tuple[Event, CloseReason, str]] = {
    Timer.RETRY: (Event.RETRY, CloseReason.DONE, ""),
    Timer.LINGER: (Event.LINGER_OVER, CloseReason.DONE, ""),
    Timer.HANDSHAKE: (
        Event.HANDSHAKE_OVER,
        CloseReason.UNREACHABLE,
        "{peer} did not answer within {connect_timeout} s",
    ),
    Timer.IDLE: (
        Event.SILENT,
        CloseReason.VANISHED,
        "{peer} vanished: no packet arrived for {timeout} s",
    ),
    Timer.CLOSE: (
        Event.CLOSE_OVER,
        CloseReason.DRAIN_TIMEOUT,
        "{peer} took no more messages for {close_timeout} s after the close",
    ),
}

REFUSAL_TEXTS: dict[Refusal | AnswerRejection, str] = {
    Refusal.FULL: "it has too many channels",
    Refusal.WRONG_PEER: "it is another peer than the one wanted",
    Refusal.GONE: "it has given up, or is closing",
    Refusal.SCHEMA: "message types differ",
    Refusal.VERSION: "it uses another version of the protocol",
    Refusal.SEALED: "it accepts only sealed channels",
    Refusal.CLEAR: "it accepts no sealed channels",
    Refusal.DENIED: "it does not accept this peer",
    AnswerRejection.IMPOSTOR: "its key is not that of the peer wanted",
}
BY_NUMBER = {int(reason): reason for reason in REFUSAL_TEXTS}


STALLED = "{peer} answered, but the channel was not open after {after:.3g} s"


def timed_out(
    timer: Timer,
    peer: str,
    settings: ChannelSettings,
    refused: Closed | None,
    answered: float | None,
) -> tuple[Event, Closed]:
    """Return the event of a timer that has expired, and the ending if the event ends the channel.

    ``peer`` is the peer's name for the text. ``refused`` is the refusal of some address of the
    peer; an attempt that times out ends with it. ``answered`` is the age of the attempt in seconds
    if the peer has replied at all, else None.
    """
    event, reason, text = TIMEOUTS[timer]
    if timer is Timer.HANDSHAKE and refused is not None:
        return event, refused
    if timer is Timer.HANDSHAKE and answered is not None:
        text = STALLED
    words = text.format(peer=peer, after=answered, **asdict(settings))
    return event, Closed(reason, words, by_peer=False)


def name_peer(name: str, peer_id: int, addresses: Sequence[Address | None]) -> str:
    """Return the peer's name, id and first known address, for error messages."""
    host, port = next((address for address in addresses if address), ("nowhere", 0))
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    who = f"peer {peer_label(name, peer_id)}" if peer_id else "the peer"
    return f"{who} at {place}"


def refused_by_peer(peer: str, refuse: Refuse, schema: Schema) -> Closed:
    """Return the ending for a REFUSE from the peer.

    ``peer`` is the peer's name for the text, and ``schema`` the schema of this side.
    """
    known = BY_NUMBER.get(refuse.reason)
    word = known.name.lower() if known else f"reason {refuse.reason}"
    why = REFUSAL_TEXTS[known] if known else word
    reason = CloseReason.REFUSED
    if refuse.mismatch is not None:
        reason, why = CloseReason.SCHEMA, schema.explain(refuse.mismatch)
    return Closed(reason, f"{peer} refused the channel: {why}", by_peer=True, refusal=word)


def forgotten_by_peer(peer: str) -> Closed:
    """Return the ending of a channel for which the peer sent a stateless reset."""
    text = f"{peer} has forgotten the channel: it restarted, or ended it"
    return Closed(CloseReason.VANISHED, text, by_peer=True)


def path_too_small(peer: str, size: int, needed: int) -> Closed:
    """Return the ending for a path that drops datagrams of ``size`` bytes.

    ``needed`` is the size in bytes that a channel needs at least.
    """
    # A CLOSE carries at most 120 bytes of this text to the peer.
    text = f"the path MTU to {peer} is too small: {size} bytes vanish, {needed} have to pass"
    return Closed(CloseReason.PATH_TOO_SMALL, text, by_peer=False)


def closed_by_peer(peer: str, close: Close) -> Closed:
    """Return the ending for a CLOSE from the peer. An unknown reason counts as an abort."""
    clean = close.reason == CloseReason.DONE
    reason = CloseReason.DONE if clean else CloseReason.ABORTED
    why = f": {printable(close.text)}" if close.text else ""
    verb = "closed" if clean else "aborted"
    return Closed(reason, f"{peer} {verb} the channel{why}", by_peer=True)


def aborted_here(why: str) -> Closed:
    """Return the ending for a call of ``abort`` on this side."""
    return Closed(CloseReason.ABORTED, why, by_peer=False)


def outcome_of(closed: Closed) -> Outcome:
    """Return the outcome of the messages that were not acked when the connection ended."""
    return Outcome.LOST if closed.reason is CloseReason.VANISHED else Outcome.CLOSED
