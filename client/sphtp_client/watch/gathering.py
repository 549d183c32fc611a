"""Frames of the same step, from slabs that are not equally far."""

from typing import Final

from sphtp_client.simulation.frames import Frame

MOST_STEPS: Final = 8
"""Steps whose frames wait for those of other slabs."""


class Gathering:
    """Puts together frames of ``slabs`` slabs, and waits for few steps at a time."""

    def __init__(self, slabs: int) -> None:
        self._slabs = slabs
        self._parts: dict[int, dict[int, Frame]] = {}
        self._done = -1

    def add(self, slab: int, frame: Frame) -> tuple[Frame, ...] | None:
        """Take a slab's frame; return those of all slabs if it was the last one of its step."""
        if frame.step <= self._done:
            return None
        parts = self._parts.setdefault(frame.step, {})
        parts[slab] = frame
        if len(parts) < self._slabs:
            if len(self._parts) > MOST_STEPS:
                del self._parts[min(self._parts)]
            return None
        self._done = frame.step
        self._parts = {step: some for step, some in self._parts.items() if step > frame.step}
        return tuple(parts[number] for number in sorted(parts))
