"""The causes of waiting, as sentences that follow from numbers. Pure.

A message waits before it leaves, on the way, or until it is read. Where it waits to leave, the
channel names the limit: the credit that the receiver granted, the congestion window, the pacing of
packets, or its own bookkeeping. A step in lock step waits for the members whose contributions are
missing, and each of those computes, or waits itself. A stream waits for its slowest receiver, or
for the rate that it was given.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sphtp.core.channel.observer import LOSSY, MANY_UNREAD
from sphtp.core.group.steps import find_slowest
from sphtp.core.printable import in_bytes, in_seconds, listed, percent
from sphtp_client.top.model import (
    ChannelReport,
    GroupReport,
    NodeReport,
    Observation,
    PlaceReport,
    SourceReport,
    SubscriptionReport,
    growth,
)

STILL: Final = 0.5
"""Seconds without a new step from which a step stands still."""

SMALLEST_ROOM: Final = 2048
"""Bytes of room below which a receiver takes no further datagram of usual size."""

FINE_STATES: Final = frozenset(("", "active", "established", "registered"))


class Weight(IntEnum):
    """The weight of a cause: what stands still comes before what is slow."""

    NOTE = 0
    SLOW = 1
    STOPPED = 2


@dataclass(frozen=True)
class Cause:
    """A sentence, and the names of the nodes that it is about."""

    weight: Weight
    text: str
    about: tuple[str, ...] = ()


def find_causes(observations: Sequence[Observation]) -> list[Cause]:
    """Return the causes of all that waits, the heaviest first."""
    found: list[Cause] = []
    for one in observations:
        found += _of_place(one)
        for node in one.now.nodes:
            found += of_node(node)
        for channel in one.now.channels:
            found += of_channel(channel)
        earlier = one.earlier("sources")
        for source in one.now.sources:
            found += of_source(source, earlier.get(source.key))
        lost = one.earlier("subscriptions")
        for subscription in one.now.subscriptions:
            found += of_subscription(subscription, lost.get(subscription.key))
    found += of_groups(observations)
    # Of the same weight, in the order of what they are about.
    return sorted(found, key=lambda cause: -cause.weight)


def _of_place(one: Observation) -> Iterator[Cause]:
    state: PlaceReport = one.now
    if state.error:
        silent = f" for {one.seconds:.0f} s" if one.seconds >= 1 else ""
        yield Cause(Weight.STOPPED, f"{state.place} has not answered{silent}: {state.error}.")


def of_node(node: NodeReport) -> Iterator[Cause]:
    """Yield the cause if a node serves nobody new."""
    if node.state not in FINE_STATES:
        meaning = "admits no new client" if node.kind == "server" else "finds no new peer"
        text = f"{node.kind} {node.name} is {node.state}: it {meaning}."
        yield Cause(Weight.STOPPED, text, (node.name,))


_BLOCKED: Final = {
    "credit": "the credit of {peer} is used up: its program reads too slowly, or not at all",
    "window": "the congestion window is full: {in_flight} of {window} are on the way",
    "pacing": "pacing spreads the packets over the round trip",
    "sequences": "so many packets are on the way that their numbers would repeat",
    "lane": "the oldest message of a lane is not acknowledged, and too many came after it",
}


def of_channel(channel: ChannelReport) -> Iterator[Cause]:
    """Yield what keeps messages of a channel waiting: to be sent, answered, or read."""
    node, peer, about = channel.node, channel.peer, (channel.node, channel.peer)
    of_service = "" if channel.service == "messages" else f" ({channel.service})"
    if channel.probes:
        probes = _number(channel.probes, "probe")
        text = f"{peer} has not answered {probes} of {node}{of_service}: the path is being probed"
        yield Cause(Weight.STOPPED, f"{text}; it is cut, or {peer} stands still.", about)
    if channel.waiting and (known := _BLOCKED.get(channel.blocked)):
        way = known.format(
            peer=peer, in_flight=in_bytes(channel.in_flight), window=in_bytes(channel.window)
        )
        waiting = _number(channel.waiting, "message")
        text = f"{waiting} of {node} for {peer}{of_service} wait: {way}{_of_path(channel)}"
        weight = Weight.STOPPED if channel.blocked == "credit" else Weight.SLOW
        yield Cause(weight, f"{text}{_of_lanes(channel)}.", about)
    if channel.unread >= MANY_UNREAD:
        unread = _number(channel.unread, "message")
        text = f"{node} has not read {unread} of {peer}{of_service}: its program is a slow reader."
        yield Cause(Weight.SLOW, text, about)


def _of_path(channel: ChannelReport) -> str:
    """Return what a full window has to do with the path."""
    if channel.blocked not in ("window", "pacing"):
        return ""
    words = ""
    if channel.round_trip is not None:
        words += f", the round trip takes {in_seconds(channel.round_trip)}"
    if channel.loss >= LOSSY:
        words += f", {percent(channel.loss)} of the packets are lost"
    return words


def _of_lanes(channel: ChannelReport) -> str:
    """Return in which lane most of the messages wait, where there are several."""
    if len(channel.lanes) < 2:
        return ""
    longest = max(channel.lanes, key=lambda lane: lane.size)
    return f"; in lane {longest.lane} {_number(longest.messages, 'message')}"


def of_source(source: SourceReport, before: SourceReport | None = None) -> Iterator[Cause]:
    """Yield what new data of a stream waits for, and the receivers that it waits for no more."""
    node, topics = source.node, source.topics
    if source.waiting:
        text = f"{in_bytes(source.waiting)} of {topics} of {node} wait"
        known = [it for it in source.receivers if it.room is not None]
        slowest = min(known, key=lambda it: it.room or 0, default=None)
        if slowest is not None and slowest.room is not None and slowest.room < SMALLEST_ROOM:
            behind = _number(slowest.behind, "datagram")
            why = f"{slowest.peer} has no room, {behind} behind: its reader is slow"
            yield Cause(Weight.SLOW, f"{text}: {why}.", (node, slowest.peer))
        elif source.repairs_waiting:
            repairs = _number(source.repairs_waiting, "repair")
            yield Cause(Weight.SLOW, f"{text}: {repairs} have to leave first.", (node,))
        else:
            yield Cause(Weight.NOTE, f"{text} for its data rate.", (node,))
    elif source.repairs_waiting:
        repairs = _number(source.repairs_waiting, "repair")
        text = f"{repairs} of {topics} of {node} wait for the repair rate."
        yield Cause(Weight.SLOW, text, (node,))
    if left := growth(source, before, "left_behind"):
        text = f"{topics} of {node} goes on without {_number(int(left), 'receiver')}: too slow."
        yield Cause(Weight.SLOW, text, (node,))


def of_subscription(
    subscription: SubscriptionReport, before: SubscriptionReport | None = None
) -> Iterator[Cause]:
    """Yield what received messages of a stream wait for, and those that never come."""
    node, peer, topic = subscription.node, subscription.peer, subscription.topic
    if subscription.waiting and subscription.missing:
        waiting = _number(subscription.waiting, "message")
        missing = _number(subscription.missing, "datagram")
        text = f"{waiting} of {topic} of {peer} wait at {node}: {missing} before them are missing."
        yield Cause(Weight.SLOW, text, (node, peer))
    if lost := growth(subscription, before, "lost"):
        text = f"{node} has lost {_number(int(lost), 'message')} of {topic} of {peer}."
        yield Cause(Weight.SLOW, text, (node, peer))


# Groups in lock step


@dataclass(frozen=True)
class _MemberView:
    """A group as a member sees it, and as it saw it ``seconds`` before."""

    now: GroupReport
    before: GroupReport | None
    seconds: float

    @property
    def stands(self) -> bool:
        """True if no step has come for a while."""
        known = self.before is not None and self.before.step == self.now.step
        return known and self.seconds >= STILL


def of_groups(observations: Iterable[Observation]) -> Iterator[Cause]:
    """Yield for whom each group waits: in a step that stands still, or most of the time."""
    groups: defaultdict[str, list[_MemberView]] = defaultdict(list)
    for one in observations:
        earlier = one.earlier("groups")
        for group in one.now.groups:
            groups[group.group].append(_MemberView(group, earlier.get(group.key), one.seconds))
    for name, views in groups.items():
        standing = [view for view in views if view.stands and view.now.missing]
        if standing:
            yield from _of_step(name, views, standing)
        else:
            yield from _of_time(name, views)


def _of_step(
    name: str, views: Sequence[_MemberView], standing: Sequence[_MemberView]
) -> Iterator[Cause]:
    """Say for whom the earliest step waits, and what that member does."""
    step = min(view.now.step for view in standing)
    waiting = [view.now for view in standing if view.now.step == step]
    nodes = {view.now.node: view.now for view in views}
    missing = dict.fromkeys(member for group in waiting for member in group.missing)
    waiters = listed(group.node for group in waiting)
    for member in missing:
        verb = "waits" if len(waiting) == 1 else "wait"
        text = f"{waiters} {verb} for {member} in step {step} of {name}"
        seen = nodes.get(member)
        if seen is None:
            why = ""
        elif seen.step == step and seen.is_exchanging is False:
            why = f"; {member} computes"
        elif seen.missing:
            why = f"; {member} waits for {listed(seen.missing)} in step {seen.step}"
        else:
            why = f"; {member} is in step {seen.step}, and its contribution is on the way"
        yield Cause(Weight.STOPPED, f"{text}{why}.", (member, *(it.node for it in waiting)))


def _of_time(name: str, views: Sequence[_MemberView]) -> Iterator[Cause]:
    """Say for whom the members have waited for much of the time."""
    waited: defaultdict[str, float] = defaultdict(float)
    time, asked = 0.0, 0
    for view in views:
        if view.before is None or view.seconds <= 0:
            continue
        time, asked = time + view.seconds, asked + 1
        for member, total in view.now.waits.items():
            waited[member] += max(total - view.before.waits.get(member, 0.0), 0.0)
    if not time:
        return
    slowest = find_slowest(waited, time, asked)
    if slowest is not None:
        text = f"{name} waits {percent(waited[slowest] / time)} of the time for {slowest}"
        yield Cause(Weight.SLOW, f"{text}, the last of most steps.", (slowest,))


# Words


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
