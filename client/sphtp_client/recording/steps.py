"""The replay of a recorded group in lock step against one changed member.

The changed member is a program that the user starts. The replay joins the group under the names of
all other recorded members, and contributes their recorded values. At each step it compares the
changed member's contribution with the recorded one, bit by bit.

Sums in a group depend on the order of its members, which is the order of their ids. So the replay
draws the ids of the other members around that of the changed member, in the recorded order.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count
from math import inf
from typing import Any, NamedTuple

import numpy
import trio

from sphtp import Client, Peer
from sphtp.core.packing import pack
from sphtp.errors import GroupError, SettingsError
from sphtp.groups import LockstepGroup
from sphtp.shell.group_watch import WatchedMember
from sphtp_client.recording.events import ReplayStarted, Show, StepDiffers, StepsSummary
from sphtp_client.recording.mcap_file import RecordedMessage, Recording
from sphtp_client.recording.recorder import MEMBERS, NEIGHBOURS, peer_name
from sphtp_client.recording.values import RecordingError

Open = Callable[..., AbstractAsyncContextManager[Client]]
ID_STRIDE = 2
"""The difference of two consecutive ids of clients, which are odd."""

MOST_SHOWN = 60
"""The characters of a value in a difference, after which it is cut."""


class RecordedStep(NamedTuple):
    """A step: the values of the members, in the order of members."""

    step: int
    values: Sequence[Any]


class RecordedSteps:
    """The steps of a group in a recording, from the first one on.

    Raises ``SettingsError`` if the recording has no step of the group, or begins after step 0, and
    ``RecordingError`` if a list of members is malformed.
    """

    def __init__(self, recording: Recording, group: str) -> None:
        notes = [
            properties
            for name, properties in recording.metadata
            if name == MEMBERS and properties.get("group") == group
        ]
        if not notes:
            raise SettingsError(f"the recording has no steps of a group {group!r}")
        self._recording = recording
        self._group = group
        # By the step from which on they are the members.
        self._members = {int(it["step"]): _members_of(it["members"]) for it in reversed(notes)}
        self.first = min(self._members)
        if self.first > 0:
            raise SettingsError(
                f"the recording begins at step {self.first}, and a member that begins anew makes "
                "step 0; start the recorder before the members"
            )
        self._partial = {
            int(properties["step"])
            for name, properties in recording.metadata
            if name == NEIGHBOURS and properties.get("group") == group
        }
        self.ended = ""
        """The reason why the iteration ended before the end of the recording; else empty."""

    @property
    def members(self) -> tuple[WatchedMember, ...]:
        """The members of the first step, in order."""
        return self._members[self.first]

    @property
    def names(self) -> list[str]:
        """The names of the members of the first step; the id of a member without a name."""
        return [peer_name(member.name, member.id) for member in self.members]

    def __iter__(self) -> Iterator[RecordedStep]:
        """Iterate over the steps up to the first that differs in kind.

        That step is incomplete, has other members, or was an exchange with neighbours only. Raises
        ``RecordingError`` if a value cannot be decoded.
        """
        keys = [(str(member.id), str(member.incarnation)) for member in self.members]
        places = {key: place for place, key in enumerate(keys)}
        waiting: dict[int, dict[int, RecordedMessage]] = {}
        step = self.first
        for message in self._recording.messages():
            about = message.channel.metadata
            if message.channel.kind != "group" or message.channel.name != self._group:
                continue
            place = places.get((about.get("peer_id", ""), about.get("session", "")))
            if place is not None and message.number >= step:
                waiting.setdefault(message.number, {})[place] = message
            while len(waiting.get(step, ())) == len(keys):
                if self._is_over(step):
                    return
                messages = waiting.pop(step)
                values = [messages[place].value() for place in range(len(keys))]
                yield RecordedStep(step, values)
                step += 1
        if not self._is_over(step) and waiting:
            lacking = waiting.get(step, {})
            names = [name for place, name in enumerate(self.names) if place not in lacking]
            self.ended = f"the recording lacks step {step} of {', '.join(names)}"

    def _is_over(self, step: int) -> bool:
        changed = [at for at in self._members if self.first < at <= step]
        if any(self._members[at] != self.members for at in changed):
            self.ended = f"the members differ from step {min(changed)} on"
        elif step in self._partial:
            self.ended = f"step {step} was an exchange with neighbours only"
        return bool(self.ended)


def _members_of(text: str) -> tuple[WatchedMember, ...]:
    try:
        return tuple(WatchedMember(*row) for row in json.loads(text))
    except (ValueError, TypeError) as error:
        raise RecordingError(f"the members of a group are malformed: {error}") from None


async def replay_steps(
    steps: RecordedSteps,
    group: str,
    changed: str,
    connect: Open,
    show: Show,
    *,
    file: str,
    on_death: str = "raise",
    wait: float = inf,
) -> StepsSummary:
    """Contribute as all members but ``changed``, show its differences, and return a summary.

    ``wait`` is the longest wait for the changed member, in seconds. Raises ``SettingsError`` if
    ``changed`` is not the name of exactly one recorded member or there was no other member, and
    ``trio.TooSlowError`` if the changed member does not join in time.
    """
    names = steps.names
    if names.count(changed) != 1:
        raise SettingsError(f"--changed = {changed!r}; the members were {', '.join(names)}")
    if len(names) == 1:
        raise SettingsError("the recorded group has no other member")
    place = names.index(changed)
    show(ReplayStarted(file=file, topics=[f"group {group}"], seconds=None))

    def is_changed(peer: Peer) -> bool:
        return group in peer.groups and peer_name(peer.name, peer.id) == changed

    async with connect(None, name="replay") as watcher:
        with trio.fail_after(wait):
            peer = await watcher.wait_for_peer(is_changed)
    joined: dict[int, LockstepGroup] = {}
    stepping = _Stepping(steps, place, changed, show)

    async def be(other: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        member = steps.members[other]
        ids = _ids_beside(peer.id, other - place, len(names))
        async with (
            connect(None, name=member.name, ids=ids) as client,
            client.join(group, size=len(names), on_death=on_death) as joined[other],
        ):
            task_status.started()
            await done.wait()

    done = trio.Event()
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as joining:
            for other in range(len(names)):
                if other != place:
                    joining.start_soon(nursery.start, be, other)
        await stepping.run(joined)
        done.set()
    return StepsSummary(
        group=group,
        member=changed,
        first=steps.first,
        steps=stepping.steps,
        equal=stepping.equal,
        reason=stepping.reason or steps.ended,
    )


def _ids_beside(own: int, distance: int, members: int) -> Iterator[int]:
    """Iterate over ids for the member ``distance`` places behind the one with the id ``own``.

    A negative distance means places before it. Members at different distances get different ids.
    """
    stride = members * (1 if distance > 0 else -1)
    return (own + ID_STRIDE * (distance + stride * more) for more in count())


class _Stepping:
    """The recorded steps, performed for all members but the changed one."""

    def __init__(self, steps: RecordedSteps, place: int, changed: str, show: Show) -> None:
        self.steps = 0
        self.equal = 0
        self.reason = ""
        self._recorded = steps
        self._place = place
        self._changed = changed
        self._show = show

    async def run(self, groups: Mapping[int, LockstepGroup]) -> None:
        first = min(groups)
        try:
            for step in self._recorded:
                got: list[Any] = []

                async def exchange(
                    place: int, step: RecordedStep = step, got: list[Any] = got
                ) -> None:
                    contributions = await groups[place].exchange(step.values[place])
                    if place == first:
                        got.extend(
                            value
                            for member, value in contributions.items()
                            if peer_name(member.name, member.id) == self._changed
                        )

                async with trio.open_nursery() as nursery:
                    for place in groups:
                        nursery.start_soon(exchange, place)
                if not got:
                    self.reason = f"{self._changed} is no longer a member at step {step.step}"
                    return
                self._compare(step, got[0])
        except* GroupError as errors:
            self.reason = str(errors.exceptions[0])
        except* RecordingError as errors:
            self.reason = str(errors.exceptions[0])

    def _compare(self, step: RecordedStep, got: Any) -> None:
        self.steps += 1
        recorded = step.values[self._place]
        if pack(recorded) == pack(got):
            self.equal += 1
        else:
            self._show(StepDiffers(step=step.step, what=difference(recorded, got)))


def difference(recorded: Any, got: Any) -> str:
    """Describe the difference between a recorded value and a new one."""
    if isinstance(recorded, numpy.ndarray) and isinstance(got, numpy.ndarray):
        if (recorded.dtype, recorded.shape) != (got.dtype, got.shape):
            return (
                f"recorded {recorded.dtype} of shape {recorded.shape}, "
                f"now {got.dtype} of shape {got.shape}"
            )
        # By their bits, by which -0.0 differs from 0.0, and NaN does not differ from NaN.
        one, other = (numpy.frombuffer(it.tobytes(), f"V{it.itemsize}") for it in (recorded, got))
        different = one != other
        text = f"{int(different.sum())} of {recorded.size} items differ"
        if recorded.dtype.kind in "iufc" and different.any():
            wide = complex if recorded.dtype.kind == "c" else float
            before, now = recorded.ravel()[different], got.ravel()[different]
            most = numpy.abs(now.astype(wide) - before.astype(wide)).max()
            text += f", by at most {most:.6g}"
        return text
    return f"recorded {_short(recorded)}, now {_short(got)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
