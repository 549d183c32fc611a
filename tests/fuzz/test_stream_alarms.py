"""The targets of streams can fail, too: whatever goes wrong on purpose is seen."""

from random import Random

import pytest

from sphtp.core.secure.seal import Unsealer
from sphtp.core.stream.events import Item, Loss
from sphtp.core.stream.nak import NakGenerator
from sphtp.core.stream.ordered_delivery import ReaderQueue
from sphtp.core.stream.ranges import Span
from sphtp.core.stream.records import RunRecord, encode_run
from sphtp.core.stream.retransmission import RetransmitQueue
from sphtp.core.stream.sealing import TcpSeal
from sphtp.core.stream.source import SourceTransport
from sphtp.core.stream.unrecoverable_loss import PendingMessages
from sphtp.core.stream.wire import Window, encode_data
from sphtp.core.token_bucket import TokenBucket
from tests.fuzz.targets import TARGETS

# Each plants a fault in the core, where a compiled one calls its own.
pytestmark = pytest.mark.plain

Patch = pytest.MonkeyPatch
TRIES = 150


def run(name: str) -> None:
    for number in range(TRIES):
        TARGETS[name](Random(number).randbytes(400))


def test_a_source_that_takes_any_number_of_repairs_is_seen(monkeypatch: Patch) -> None:
    monkeypatch.setattr(RetransmitQueue, "is_full", False)
    monkeypatch.setattr(TokenBucket, "take_up_to", lambda _, __, wanted: min(wanted, 100))
    with pytest.raises(AssertionError, match="repair"):
        run("stream-source")


def test_a_source_that_is_woken_for_nothing_is_seen(monkeypatch: Patch) -> None:
    monkeypatch.setattr(SourceTransport, "poll_timeout", lambda _: 1.0)
    with pytest.raises(AssertionError, match="busy at"):
        run("stream-source")


def test_a_receiver_that_asks_without_end_is_seen(monkeypatch: Patch) -> None:
    monkeypatch.setattr(NakGenerator, "poll_nak", lambda *_: b"?")
    with pytest.raises(AssertionError, match="still talking"):
        run("stream-subscription")


def test_a_message_that_is_told_twice_is_seen(monkeypatch: Patch) -> None:
    honest = PendingMessages.take_known

    def generous(gate: PendingMessages, first: int, last: int) -> list[Span]:
        return honest(gate, first, last) or [Span(first, last)]

    monkeypatch.setattr(PendingMessages, "take_known", generous)
    with pytest.raises(AssertionError, match=r"told twice|after \d+"):
        run("stream-subscription")


def test_a_desk_that_believes_what_was_forged_is_seen(monkeypatch: Patch) -> None:
    """Whatever was not sealed by the source is taken for what it might have said."""
    honest, forged = Unsealer.open, encode_run(RunRecord(0, 0, [b"forged!!"]))

    def credulous(unsealer: Unsealer, data: bytes, size: int) -> list[bytes]:
        return honest(unsealer, data, size) or [encode_data(1, Window(1, 1), forged)]

    monkeypatch.setattr(Unsealer, "open", credulous)
    with pytest.raises(AssertionError, match="forgery"):
        run("stream-desk")


def test_a_line_that_raises_what_it_should_not_is_seen(monkeypatch: Patch) -> None:
    def raising(_: TcpSeal, data: bytes) -> bytes:
        return data[1 // len(data) :] if len(data) != 1 else data

    monkeypatch.setattr(TcpSeal, "open_untrusted", raising)
    with pytest.raises(ExceptionGroup):
        run("stream-callers")


def test_a_stream_that_loses_a_message_in_silence_is_seen(monkeypatch: Patch) -> None:
    poll = ReaderQueue.poll

    def forgetful(queue: ReaderQueue) -> Item | None:
        while isinstance(item := poll(queue), Loss):
            pass
        return item

    monkeypatch.setattr(ReaderQueue, "poll", forgetful)
    with pytest.raises(AssertionError, match="neither told nor lost"):
        run("stream-airing")
