"""Pages of metrics as nodes serve them, made for tests."""

from collections.abc import Iterator, Mapping
from typing import Any

from sphtp_client.top.model import Observation, PlaceReport, Sample, read_samples_untrusted

CHANNEL = {"node": "ada", "peer": "bob", "service": "messages", "channel": "0x00000001"}
GROUP = {"group": "fluid"}


def channel(at: Mapping[str, str] = CHANNEL, **figures: float) -> Iterator[Sample]:
    """Yield samples of a channel; a figure is the end of its metric's name."""
    for name, value in figures.items():
        if name.startswith("lane"):
            number, _, figure = name.removeprefix("lane").partition("_")
            yield Sample(f"sphtp_lane_{figure}", {**at, "lane": number}, value)
        elif name.startswith("by_"):
            yield Sample("sphtp_channel_blocked", {**at, "by": name[3:]}, value)
        else:
            yield Sample(f"sphtp_channel_{name}", at, value)


def group(node: str, *missing: str, waits: Mapping[str, float] = {}, **figures: float) -> Any:
    """Yield samples of a group as a member sees it."""
    at = {"node": node, **GROUP}
    yield Sample("sphtp_group_members", at, 3)
    for name, value in figures.items():
        yield Sample(f"sphtp_group_{name}", at, value)
    for member in missing:
        yield Sample("sphtp_group_missing", {**at, "member": member}, 1)
    for member, seconds in waits.items():
        yield Sample("sphtp_group_wait_seconds_sum", {**at, "member": member}, seconds)


def node(name: str, state: str = "established", **figures: float) -> Iterator[Sample]:
    """Yield samples of a client."""
    yield Sample("sphtp_node_datagrams_sent_total", {"node": name}, 7)
    yield Sample("sphtp_client_state", {"node": name, "state": "searching"}, 0)
    yield Sample("sphtp_client_state", {"node": name, "state": state}, 1)
    for figure, value in figures.items():
        yield Sample(f"sphtp_client_{figure}", {"node": name}, value)


def state(*samples: Any, at: float = 0.0, place: str = "here:1") -> PlaceReport:
    """Return the state that samples tell, of iterables of samples."""
    return read_samples_untrusted(place, at, [each for part in samples for each in part])


def observed(now: PlaceReport, before: PlaceReport | None = None) -> Observation:
    return Observation(now) if before is None else Observation(before).followed_by(now)
