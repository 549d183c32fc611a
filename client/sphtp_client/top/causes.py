"""The causes of waiting, as sentences that are derived from reports, without I/O.

A message waits before it leaves, on the path, or until it is read. If it waits to leave, the
channel reports the limit: the credit that the receiver granted, the congestion window, the pacing
of packets, or the numbers of packets and messages in use. A step in lock step waits for the members
whose contributions are missing; each of these computes, or waits itself. A stream waits for its
slowest receiver, for repairs that have to leave first, or for its data rate.
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
"""Seconds without a new step after which a group counts as stopped."""

SMALLEST_ROOM: Final = 2048
"""The room of a receiver, in bytes, below which no further datagram of usual size fits."""

FINE_STATES: Final = frozenset(("", "active", "established", "registered"))


class Weight(IntEnum):
    """The weight of a cause. Heavier causes are shown first."""

    NOTE = 0
    SLOW = 1
    STOPPED = 2


@dataclass(frozen=True)
class Cause:
    """A cause of waiting: a sentence, and the names of the nodes that it concerns."""

    weight: Weight
    text: str
    about: tuple[str, ...] = ()


def find_causes(observations: Sequence[Observation]) -> list[Cause]:
    """Return the causes of all waiting in the observations, the heaviest first."""
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
    # The sort is stable, so causes of equal weight stay in the order of the observations.
    return sorted(found, key=lambda cause: -cause.weight)


def _of_place(one: Observation) -> Iterator[Cause]:
    state: PlaceReport = one.now
    if state.error:
        silent = f" for {one.seconds:.0f} s" if one.seconds >= 1 else ""
        yield Cause(Weight.STOPPED, f"{state.place} has not answered{silent}: {state.error}.")


def of_node(node: NodeReport) -> Iterator[Cause]:
    """Yield a cause if the state of a node keeps it from admitting or finding others."""
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
    """Yield the causes of waiting on a channel: a silent peer, a sending limit, a slow reader."""
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
    """Return the round trip and the loss of the path, if the window or pacing is the limit."""
    if channel.blocked not in ("window", "pacing"):
        return ""
    words = ""
    if channel.round_trip is not None:
        words += f", the round trip takes {in_seconds(channel.round_trip)}"
    if channel.loss >= LOSSY:
        words += f", {percent(channel.loss)} of the packets are lost"
    return words


def _of_lanes(channel: ChannelReport) -> str:
    """Return the lane with the most waiting bytes, if there are several lanes."""
    if len(channel.lanes) < 2:
        return ""
    longest = max(channel.lanes, key=lambda lane: lane.size)
    return f"; in lane {longest.lane} {_number(longest.messages, 'message')}"


def of_source(source: SourceReport, before: SourceReport | None = None) -> Iterator[Cause]:
    """Yield the causes for which data or repairs of a source wait, and receivers left behind."""
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
    """Yield a cause for received messages that wait for missing ones, and one for losses."""
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
    """Two reports of a group by one member, ``seconds`` apart; ``before`` is None for the first."""

    now: GroupReport
    before: GroupReport | None
    seconds: float

    @property
    def stands(self) -> bool:
        """True if the step has not changed for at least ``STILL`` seconds."""
        known = self.before is not None and self.before.step == self.now.step
        return known and self.seconds >= STILL


def of_groups(observations: Iterable[Observation]) -> Iterator[Cause]:
    """Yield the members for which each group waits: in a stopped step, or much of the time."""
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
    """Yield the members for which the earliest stopped step waits, and the state of each."""
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
    """Yield the member for which the others have waited for a large share of the time."""
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
