"""The status of a whole cluster as one document, with sentences on what slows it down.

Theory of operation. Each client has only its own channels, streams and steps. ``ClusterObserver``
collects the answers of all clients, and ``cluster_status`` combines them. Its rates are differences
between the last two answers of a peer, by the clock of that peer. So the delay of the answers does
not matter. The functions here are pure.

The sentences follow from times of waiting. In lock step each member counts the time for which it
waited, by the member whose contribution came last. The sum over all members shows the member that
holds up the others. The reason may be in the losses and round trips of that member's channels, or
in the messages that its program has not read. Otherwise it is the time for which it computes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite
from statistics import median
from typing import Any, Final, Literal, NamedTuple, TypedDict, cast

from sphtp.core.channel.observer import LOSSY, MANY_UNREAD
from sphtp.core.control.records import Peer
from sphtp.core.group.steps import find_slowest
from sphtp.core.printable import in_seconds, percent, printable
from sphtp.shell.status import (
    OBSERVER_DATA,
    VERSION,
    ChannelStatus,
    ClientStatus,
    StepsStatus,
)

PACE: Final = 1.0
"""Seconds between two documents, and between two requests to a peer unless there are many peers."""

CauseLevel = Literal["good", "notice", "warning", "serious"]


class ServerLine(TypedDict):
    """A server of the cluster. ``clients`` is None for a server of another process."""

    id: int
    state: str
    address: str
    clients: int | None


class WaitLine(TypedDict):
    """A member that was the last one, and the share of the time for which a peer waited for it."""

    name: str
    share: float


class PaceLine(TypedDict):
    """The steps of a peer in one group, or of one simulation: rate, time, and share of waiting."""

    name: str
    step: int
    steps_per_s: float | None
    step_seconds: float | None
    waiting: float | None
    waits: list[WaitLine]


class SourceLine(TypedDict):
    """A source of a peer, with the receiver that is the farthest behind."""

    topics: list[str]
    receivers: int
    messages_per_s: float | None
    repairs_per_s: float | None
    behind: int
    slowest: int | None


class TopicLine(TypedDict):
    """A subscription of a peer; ``lost`` counts messages since the answer before."""

    peer: int
    topic: str
    messages_per_s: float | None
    lost: int


class PeerLine(TypedDict):
    """A client of the cluster.

    ``state`` is None as long as the client has not answered. ``problem`` is the reason why the last
    request failed, or None. ``age`` is the time in seconds since the client's last answer.
    ``picture`` has the box and the radius of the spheres that it simulates, if its data have them.
    """

    id: int
    name: str
    addresses: list[str]
    topics: list[str]
    groups: list[str]
    state: str | None
    servers: list[int]
    age: float | None
    problem: str | None
    is_observer: bool
    unread: int
    paces: list[PaceLine]
    sources: list[SourceLine]
    subscriptions: list[TopicLine]
    picture: Any


class LinkLine(TypedDict):
    """The channels from one peer to another: their sums, and rates since the answer before.

    ``rtt`` is that of the channel that has sent the most. ``loss`` is the share of lost packets
    since the answer before, or for few packets the smoothed share of that channel.
    """

    source: int
    target: int
    services: list[str]
    rtt: float | None
    loss: float
    packets_per_s: float | None
    bytes_per_s: float | None
    messages_per_s: float | None
    resent_per_s: float | None
    waiting: int
    unread: int


class TotalsLine(TypedDict):
    """Sums of rates over all links, the share of lost packets, and the median round trip.

    ``steps_per_s`` is the mean over all ``paces`` of the peers.
    """

    packets_per_s: float
    bytes_per_s: float
    messages_per_s: float
    loss: float
    rtt: float | None
    steps_per_s: float | None


class CauseLine(TypedDict):
    """A sentence on what slows the cluster down; ``about`` is the id of its peer or server."""

    level: CauseLevel
    about: int | None
    text: str


class ClusterStatus(TypedDict):
    """The status of a cluster; see ``cluster_status`` for ``observer``, ``pause``, ``problem``."""

    version: int
    observer: int | None
    pause: float
    problem: str | None
    servers: list[ServerLine]
    peers: list[PeerLine]
    links: list[LinkLine]
    totals: TotalsLine
    causes: list[CauseLine]


class PeerAnswers(NamedTuple):
    """The last two answers of a peer, and the failure of a later request."""

    last: ClientStatus | None = None
    before: ClientStatus | None = None
    age: float | None = None
    """The seconds since the last answer."""
    problem: str | None = None


def cluster_status(
    servers: Sequence[ServerLine],
    peers: Iterable[Peer],
    answers: Mapping[int, PeerAnswers],
    observer: int | None = None,
    pause: float = PACE,
    problem: str | None = None,
) -> ClusterStatus:
    """Return the status of a cluster from its servers, its peers, and the answers of the peers.

    ``observer`` is the id of the client that sends the requests, if it only observes. It sends a
    request to a peer ``pause`` seconds after the peer's last answer. ``problem`` is the reason why
    a part of the cluster is missing.
    """
    none = PeerAnswers()
    lines, links = [], []
    for peer in sorted(peers, key=lambda each: (each.name, each.id)):
        answered = answers.get(peer.id, none)
        lines.append(_peer_line(peer, answered, observer))
        if answered.last is not None:
            links += _links(peer.id, answered.last, answered.before, observer)
    found: ClusterStatus = {
        "version": VERSION,
        "observer": observer,
        "pause": pause,
        "problem": None if problem is None else printable(problem),
        "servers": list(servers),
        "peers": lines,
        "links": links,
        "totals": _totals(links, lines),
        "causes": [],
    }
    found["causes"] = find_causes(found)
    return found


def _peer_line(peer: Peer, answers: PeerAnswers, observer: int | None) -> PeerLine:
    last, before = answers.last, answers.before
    line: PeerLine = {
        "id": peer.id,
        "name": printable(peer.name),
        "addresses": [f"{host}:{port}" for host, port in peer.addresses],
        "topics": [printable(topic) for topic in peer.topics],
        "groups": [printable(group) for group in peer.groups],
        "state": None,
        "servers": [],
        "age": answers.age,
        "problem": answers.problem,
        "is_observer": peer.id == observer or peer.data == OBSERVER_DATA,
        "unread": 0,
        "paces": [],
        "sources": [],
        "subscriptions": [],
        "picture": _picture(peer.data),
    }
    if last is not None:
        seconds = _between(last, before)
        line["state"], line["servers"] = last["state"], last["servers"]
        line["unread"] = sum(channel["unread"] for channel in last["channels"])
        line["paces"] = [
            _pace(steps, _of_name(before, steps["name"]), seconds) for steps in last["steps"]
        ]
        _add_streams(line, last, before, seconds, observer)
    return line


def _picture(data: Any) -> Any:
    """Return the box and the radius from the data of a peer that simulates spheres, or None."""
    if not isinstance(data, dict):
        return None
    box, radius = data.get("box"), data.get("radius")
    if not isinstance(box, list) or len(box) != 3:
        return None
    numbers = [*box, radius]
    if not all(isinstance(each, float) and isfinite(each) and each > 0 for each in numbers):
        return None
    return {"box": box, "radius": radius}


_LEAST_INTERVAL: Final = 0.05
"""The least seconds between two answers for a rate. Usually a peer answers once a second."""


def _between(last: ClientStatus, before: ClientStatus | None) -> float:
    """Return the seconds between two answers; infinite if there can be no rate."""
    seconds = inf if before is None else last["time"] - before["time"]
    return seconds if seconds >= _LEAST_INTERVAL else inf


def _rate(now: float, before: float, seconds: float) -> float | None:
    return None if seconds == inf else max(now - before, 0.0) / seconds


def _of_name(status: ClientStatus | None, name: str) -> StepsStatus | None:
    every = () if status is None else status["steps"]
    return next((each for each in every if each["name"] == name), None)


def _pace(now: StepsStatus, before: StepsStatus | None, seconds: float) -> PaceLine:
    line: PaceLine = {
        "name": now["name"],
        "step": now["step"],
        "steps_per_s": None,
        "step_seconds": None,
        "waiting": None,
        "waits": [],
    }
    if before is None or seconds == inf:
        return line
    steps = max(now["exchanges"]["count"] - before["exchanges"]["count"], 0)
    waited = max(now["exchanges"]["seconds"] - before["exchanges"]["seconds"], 0.0)
    line["steps_per_s"] = steps / seconds
    line["step_seconds"] = seconds / steps if steps else None
    line["waiting"] = min(waited / seconds, 1.0)
    earlier = {each["name"]: each["seconds"] for each in before["waits"]}
    grown = Counter(
        {each["name"]: each["seconds"] - earlier.get(each["name"], 0.0) for each in now["waits"]}
    )
    line["waits"] = [
        {"name": name, "share": min(time / seconds, 1.0)}
        for name, time in grown.most_common(8)
        if time > 0
    ]
    return line


def _add_streams(
    line: PeerLine,
    last: ClientStatus,
    before: ClientStatus | None,
    seconds: float,
    observer: int | None,
) -> None:
    sources = {tuple(each["topics"]): each for each in (before["sources"] if before else ())}
    for source in last["sources"]:
        was = sources.get(tuple(source["topics"]))
        lags = [
            (each["behind"], each["peer"])
            for each in source["receivers"]
            if each["peer"] != observer
        ]
        behind, slowest = max(lags, default=(0, None))
        sent, repairs = (was["messages_sent"], was["repairs_sent"]) if was else (0, 0)
        line["sources"].append(
            {
                "topics": source["topics"],
                "receivers": len(lags),
                "messages_per_s": _rate(source["messages_sent"], sent, seconds),
                "repairs_per_s": _rate(source["repairs_sent"], repairs, seconds),
                "behind": behind,
                "slowest": slowest,
            }
        )
    topics = {
        (each["peer"], each["topic"]): each for each in (before["subscriptions"] if before else ())
    }
    for topic in last["subscriptions"]:
        had = topics.get((topic["peer"], topic["topic"]))
        delivered, lost = (had["delivered"], had["lost"]) if had else (0, topic["lost"])
        line["subscriptions"].append(
            {
                "peer": topic["peer"],
                "topic": topic["topic"],
                "messages_per_s": _rate(topic["delivered"], delivered, seconds),
                "lost": max(topic["lost"] - lost, 0),
            }
        )


ENOUGH: Final = 50
"""The least packets between two answers for a share of losses. For fewer packets, it is the
channel's smoothed share.
"""


def _links(
    source: int, last: ClientStatus, before: ClientStatus | None, observer: int | None
) -> list[LinkLine]:
    """Return a line for each peer with a channel other than those for status.

    There is no line for a node without an id. There is none for the observer: the states of a
    simulation that it gets are not traffic of the cluster, and no client waits for it.
    """
    seconds = _between(last, before)
    earlier = {_key(channel): channel for channel in (before["channels"] if before else ())}
    by_peer: defaultdict[int, list[ChannelStatus]] = defaultdict(list)
    for channel in last["channels"]:
        if channel["service"] != "status" and channel["peer"] not in (0, observer):
            by_peer[channel["peer"]].append(channel)
    lines: list[LinkLine] = []
    for target, channels in by_peer.items():
        grown = Counter[str]()
        for channel in channels:
            was = earlier.get(_key(channel))
            for name in ("sent", "lost", "bytes_sent", "messages_sent", "resent"):
                grown[name] += max(_number(channel, name) - _number(was, name), 0)
        busiest = max(channels, key=lambda each: each["sent"])
        is_counted = seconds != inf and grown["sent"] >= ENOUGH
        lines.append(
            {
                "source": source,
                "target": target,
                "services": sorted({channel["service"] for channel in channels}),
                "rtt": busiest["rtt"],
                "loss": min(grown["lost"] / grown["sent"] if is_counted else busiest["loss"], 1.0),
                "packets_per_s": _rate(grown["sent"], 0, seconds),
                "bytes_per_s": _rate(grown["bytes_sent"], 0, seconds),
                "messages_per_s": _rate(grown["messages_sent"], 0, seconds),
                "resent_per_s": _rate(grown["resent"], 0, seconds),
                "waiting": sum(channel["waiting"] for channel in channels),
                "unread": sum(channel["unread"] for channel in channels),
            }
        )
    return lines


def _number(channel: ChannelStatus | None, name: str) -> int:
    return 0 if channel is None else cast("dict[str, int]", channel)[name]


def _key(channel: ChannelStatus) -> tuple[int, str, int]:
    return channel["peer"], channel["service"], channel["channel"]


def _totals(links: Sequence[LinkLine], peers: Sequence[PeerLine]) -> TotalsLine:
    packets = sum(link["packets_per_s"] or 0.0 for link in links)
    lost = sum((link["packets_per_s"] or 0.0) * link["loss"] for link in links)
    trips = [link["rtt"] for link in links if link["rtt"] is not None]
    rates = [pace["steps_per_s"] for peer in peers for pace in peer["paces"]]
    known = [rate for rate in rates if rate is not None]
    return {
        "packets_per_s": packets,
        "bytes_per_s": sum(link["bytes_per_s"] or 0.0 for link in links),
        "messages_per_s": sum(link["messages_per_s"] or 0.0 for link in links),
        "loss": lost / packets if packets else 0.0,
        "rtt": median(trips) if trips else None,
        "steps_per_s": sum(known) / len(known) if known else None,
    }


# The sentences

LONG_TRIP: Final = 0.005
"""Seconds from which a round trip may be a reason, if it is also three times the median."""

FAR_BEHIND: Final = 1000
"""The number of datagrams; a receiver that is as far behind counts as slow."""

SILENT: Final = 5.0
"""Seconds without an answer, in addition to the pause, after which a peer counts as silent."""

MOST_CAUSES: Final = 12
_ORDER: Final[Mapping[CauseLevel, int]] = {"serious": 0, "warning": 1, "notice": 2, "good": 3}


def find_causes(status: ClusterStatus) -> list[CauseLine]:
    """Return sentences on what slows a cluster down, the most serious first.

    There are ``MOST_CAUSES`` at most.
    """
    names = {peer["id"]: peer["name"] or f"{peer['id']:#010x}" for peer in status["peers"]}
    causes = [
        *_causes_of_view(status["problem"]),
        *_causes_of_servers(status["servers"]),
        *_causes_of_peers(status["peers"], status["pause"]),
        *_causes_of_waiting(status, names),
        *_causes_of_links(status["links"], names),
        *_causes_of_streams(status["peers"], names),
    ]
    if not causes:
        is_known = any(peer["state"] for peer in status["peers"])
        text = "Nothing is slow, and nothing is lost." if is_known else "No peer has answered yet."
        causes = [_cause("good" if is_known else "notice", None, text)]
    return sorted(causes, key=lambda cause: _ORDER[cause["level"]])[:MOST_CAUSES]


def _cause(level: CauseLevel, about: int | None, text: str) -> CauseLine:
    return {"level": level, "about": about, "text": text}


def _causes_of_view(problem: str | None) -> Iterator[CauseLine]:
    if problem is not None:
        yield _cause("warning", None, f"The page shows only a part: {problem}.")


def _causes_of_servers(servers: Sequence[ServerLine]) -> Iterator[CauseLine]:
    for server in servers:
        if server["state"] != "active":
            yield _cause(
                "warning", server["id"],
                f"Server {server['id']:#010x} is {server['state']}: it admits no new client.",
            )  # fmt: skip


def _causes_of_peers(peers: Sequence[PeerLine], pause: float) -> Iterator[CauseLine]:
    for peer in peers:
        label = peer["name"] or f"{peer['id']:#010x}"
        if peer["age"] is not None and peer["age"] > SILENT + pause:
            yield _cause(
                "serious", peer["id"], f"{label} has not answered for {peer['age']:.0f} s."
            )
        elif peer["state"] not in (None, "established"):
            yield _cause(
                "warning", peer["id"],
                f"{label} is {peer['state']}: no server acknowledges it now.",
            )  # fmt: skip


def _causes_of_waiting(status: ClusterStatus, names: Mapping[int, str]) -> Iterator[CauseLine]:
    """Yield the member for which the others wait, of each group, with the reason if it is known."""
    paces: defaultdict[str, list[tuple[PeerLine, PaceLine]]] = defaultdict(list)
    for peer in status["peers"]:
        for pace in peer["paces"]:
            if pace["waiting"] is not None:
                paces[pace["name"]].append((peer, pace))
    for group, members in paces.items():
        waited: defaultdict[str, float] = defaultdict(float)
        for _, pace in members:
            for wait in pace["waits"]:
                waited[wait["name"]] += wait["share"]
        # The shares are of one second of each member.
        name = find_slowest(waited, len(members), len(members))
        if name is None:
            continue
        slow = next((peer for peer, _ in members if names[peer["id"]] == name), None)
        share = percent(waited[name] / sum(waited.values()))
        text = f"{group} waits for {name}: {share} of all waiting is for it"
        reason = "" if slow is None else _reason(status, slow, group, names)
        about = None if slow is None else slow["id"]
        yield _cause("warning", about, f"{text}{'; ' if reason else ''}{reason}.")


def _reason(status: ClusterStatus, peer: PeerLine, group: str, names: Mapping[int, str]) -> str:
    """Return the reason why the others wait for a peer, or an empty text if it is not known."""
    ways = [link for link in status["links"] if peer["id"] in (link["source"], link["target"])]
    if ways:
        lossy = max(ways, key=lambda link: link["loss"])
        if lossy["loss"] >= LOSSY:
            way = f"{_named(names, lossy['source'])} to {_named(names, lossy['target'])}"
            return f"{percent(lossy['loss'])} of the packets from {way} are lost"
        slow = max(ways, key=lambda link: link["rtt"] or 0.0)
        usual = status["totals"]["rtt"] or 0.0
        if (slow["rtt"] or 0.0) > max(3 * usual, LONG_TRIP):
            other = slow["target"] if slow["source"] == peer["id"] else slow["source"]
            trip = in_seconds(slow["rtt"] or 0.0)
            way = f"its round trip to {_named(names, other)}"
            return f"{way} is {trip}, the median {in_seconds(usual)}"
    if peer["unread"] >= MANY_UNREAD:
        return f"its program has not read {peer['unread']} messages"
    pace = next(each for each in peer["paces"] if each["name"] == group)
    if pace["step_seconds"] is not None and pace["waiting"] is not None:
        step = pace["step_seconds"]
        computing = step * (1 - pace["waiting"])
        return f"it computes {in_seconds(computing)} of each step of {in_seconds(step)}"
    return ""


def _named(names: Mapping[int, str], number: int) -> str:
    return names.get(number, f"{number:#010x}")


def _causes_of_links(links: Sequence[LinkLine], names: Mapping[int, str]) -> Iterator[CauseLine]:
    lossy = [link for link in links if link["loss"] >= LOSSY]
    for link in sorted(lossy, key=lambda each: -each["loss"])[:4]:
        way = f"{_named(names, link['source'])} to {_named(names, link['target'])}"
        again = link["resent_per_s"]
        text = f"{percent(link['loss'])} of the packets from {way} are lost"
        level: CauseLevel = "warning" if link["loss"] >= 5 * LOSSY else "notice"
        more = f"; {again:.0f} a second are sent again" if again and again >= 1 else ""
        yield _cause(level, link["source"], f"{text}{more}.")
    if len(lossy) > 4:
        yield _cause("notice", None, f"{len(lossy) - 4} more links lose packets.")
    for link in links:
        if link["unread"] >= MANY_UNREAD:
            yield _cause(
                "warning", link["source"],
                f"{_named(names, link['source'])} does not read: {link['unread']} messages of "
                f"{_named(names, link['target'])} wait there.",
            )  # fmt: skip


def _causes_of_streams(peers: Sequence[PeerLine], names: Mapping[int, str]) -> Iterator[CauseLine]:
    for peer in peers:
        label = _named(names, peer["id"])
        for source in peer["sources"]:
            if source["behind"] >= FAR_BEHIND and source["slowest"] is not None:
                yield _cause(
                    "warning", source["slowest"],
                    f"{_named(names, source['slowest'])} is {source['behind']} datagrams behind "
                    f"{', '.join(source['topics'])} of {label}.",
                )  # fmt: skip
        for topic in peer["subscriptions"]:
            if topic["lost"]:
                yield _cause(
                    "warning", peer["id"],
                    f"{label} lost {topic['lost']} messages of {topic['topic']} of "
                    f"{_named(names, topic['peer'])}.",
                )  # fmt: skip
