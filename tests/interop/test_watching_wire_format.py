"""Part seven of `docs/reference/wire` says what the code does: bytes and numbers."""

from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints, is_typeddict

import pytest
import trio
import trio.testing

from sphtp.core.packing import PLAIN
from sphtp.core.schema import Schema
from sphtp.errors import RemoteError
from sphtp.shell.channel import ServiceChannel
from sphtp.shell.cluster_observer import PATIENCE
from sphtp.shell.group_watch import (
    DELAY,
    LONGEST_REDIAL,
    MOST_QUEUED,
    REDIAL,
    GroupWatchers,
    MemberContribution,
    WatchedMember,
    WatchMessage,
    mark_of,
    read_member_untrusted,
    watch_service,
)
from sphtp.shell.group_watch import PATIENCE as WATCHER_PATIENCE
from sphtp.shell.status import (
    METRICS_KIND,
    MOST_CHANNELS,
    MOST_ITEMS,
    MOST_OBSERVERS,
    STATUS_KIND,
    STATUS_SCHEMA,
    ClientStatus,
    read_client_status_untrusted,
    read_metrics_untrusted,
)
from tests.cases import each
from tests.interop.page import WIRE, Vector, read_vectors, rows_under
from tests.interop.second_reader_watching import MAPS
from tests.shell.test_group_watch import Loop, NarrowChannel, Sequence, seats

PAGE = (WIRE / "watching.md").read_text(encoding="utf-8")


def named(start: str) -> list[Vector]:
    found = [vector for vector in read_vectors() if vector.name.startswith(start)]
    assert found, start
    return found


# The status of a client

READERS = {STATUS_KIND: read_client_status_untrusted, METRICS_KIND: read_metrics_untrusted}


@each("vector", named("status/"))
def test_a_question_and_its_answer_have_these_bytes(vector: Vector) -> None:
    if "question" in vector.fields:
        assert PLAIN.encode(vector.fields["question"], None) == vector.data
        return
    answer, document = vector.fields["answer"], vector.fields["document"]
    assert PLAIN.encode([answer, document], None) == vector.data
    if answer in READERS:
        assert READERS[answer](document) == document


@each("vector", named("malformed/status/"))
def test_a_malformed_document_is_refused(vector: Vector) -> None:
    ((kind, document),) = PLAIN.decode_many_untrusted([vector.data])
    with pytest.raises(RemoteError):
        READERS[kind](document)


def kinds(kind: Any) -> str:
    """Return the words of the page for a type."""
    if get_origin(kind) is list:
        return f"list of {kinds(get_args(kind)[0])}"
    if isinstance(kind, UnionType):
        return f"{kinds(get_args(kind)[0])} or nil"
    if is_typeddict(kind):
        return str(kind.__name__)
    return str({str: "text", int: "integer", float: "number"}[kind])


NAMES = {
    "status": "ClientStatus",
    "channel": "ChannelStatus",
    "source": "SourceStatus",
    "receiver": "ReceiverStatus",
    "subscription": "TopicStatus",
    "step": "StepsStatus",
    "times": "TimeSum",
    "wait": "WaitStatus",
    "id": "integer",
    "count": "integer",
}


def maps_of(kind: Any) -> dict[str, dict[str, str]]:
    """Return a type of documents, and those in it."""
    if not is_typeddict(kind):
        inner = get_args(kind)
        return maps_of(inner[0]) if inner else {}
    hints = get_type_hints(kind)
    found = {kind.__name__: {key: kinds(hint) for key, hint in hints.items()}}
    for hint in hints.values():
        found |= maps_of(hint)
    return found


def test_every_key_has_its_kind_on_the_page_and_nothing_else_has() -> None:
    on_page = {
        NAMES[name]: {
            key: " ".join(NAMES.get(word, word) for word in kind.split())
            for key, kind in keys.items()
        }
        for name, keys in MAPS.items()
    }
    assert on_page == maps_of(ClientStatus)


# The steps of a group

ADA, BOB = WatchedMember(7, 81985529216486895, "ada"), WatchedMember(9, 1, "")


async def test_a_member_sends_the_examples(autojump_clock: trio.testing.MockClock) -> None:
    channel = NarrowChannel(1000)
    watchers = GroupWatchers("fluid", ADA, cast("Any", Loop()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watchers.keep, cast("ServiceChannel", channel))
        nursery.start_soon(watchers.run)
        await trio.testing.wait_all_tasks_blocked()
        watchers.contributed(0, None, is_for_all=True)
        watchers.completed(0, seats(ADA, BOB))
        for step in range(1, 7):
            # There is no room for three of them.
            channel.room = 0 if 3 <= step <= 5 else 1000
            watchers.contributed(step, [1, 2.5], is_for_all=step != 6)
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    sent = {vector.name: channel.sent.count(vector.data) for vector in named("watch/")}
    assert sent == dict.fromkeys(sent, 1)
    assert channel.sent[0] == named("watch/HELLO")[0].data


async def take(*messages: bytes) -> list[Any]:
    taken: list[Any] = []
    with pytest.raises(trio.EndOfChannel):
        await read_member_untrusted(Sequence([*messages]), taken.append)
    return taken


async def test_a_watcher_reads_the_examples() -> None:
    hello, *others = [vector.data for vector in named("watch/")]
    members, skipped, neighbours, contribution = await take(hello, *others)
    assert members == (0, (ADA, BOB))
    assert skipped == (ADA, 3, 5)
    assert neighbours == (ADA, 6)
    assert contribution == MemberContribution(ADA, 6, PLAIN.encode([1, 2.5], None))
    assert await take(others[-1]) == []


async def test_a_malformed_message_ends_the_channel() -> None:
    hello = named("watch/HELLO")[0].data
    for vector in named("malformed/watch/"):
        with pytest.raises(RemoteError):
            await read_member_untrusted(Sequence([hello, vector.data]), lambda _: None)


def test_every_message_has_a_row() -> None:
    rows = {(int(kind), name) for kind, name, _ in rows_under("Messages to a watcher")[2:]}
    assert rows == {(one.value, one.name) for one in WatchMessage}


def test_the_numbers_are_those_of_the_code() -> None:
    service = watch_service("fluid", lambda _: None)
    for title, schema in (
        ("Channels of the status", STATUS_SCHEMA),
        ("Channels of a watcher", service.schema),
    ):
        row = rows_under(title)[0]
        assert int(row[1], 16) == schema.schema_hash
    assert STATUS_SCHEMA.schema_hash == Schema(["sphtp.Status: version 1"]).schema_hash
    page = " ".join(PAGE.split())
    for words in (
        "the one line `sphtp.Status: version 1`",
        f"keeps at most {MOST_OBSERVERS} such channels",
        f"wait {PATIENCE:g} s for the answer",
        f"at most {MOST_ITEMS} items",
        f"at most {MOST_CHANNELS} channels",
        f"followed by `{mark_of('')}`",
        f"for {WATCHER_PATIENCE:g} s at most",
        f"pauses double from {2 * REDIAL:g} s to {LONGEST_REDIAL:g} s",
        f"open for more than {LONGEST_REDIAL:g} s, the pause is {REDIAL:g} s",
        f"shortens a pause, to {REDIAL:g} s at least",
        f"{1000 * DELAY:g} ms, or until they have {MOST_QUEUED:,} bytes",
    ):
        assert words in page, words
