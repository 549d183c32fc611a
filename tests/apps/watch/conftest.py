"""Frames, parts and peers to watch, without network."""

from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from sphtp import Peer
from sphtp_client.simulation.frames import Frame, frame_of, read_frame_untrusted
from sphtp_client.simulation.peer_links import SlabJob
from sphtp_client.simulation.scenario_file import load_scenario
from sphtp_client.simulation.slabs import Slab
from sphtp_client.watch.view import PublishedSlab, RunIdentity

STEPS = 30


@pytest.fixture
def scenario(gas_file: Any) -> Any:
    return load_scenario(gas_file)


@pytest.fixture
def make_message(scenario: Any) -> Callable[..., Any]:
    """Make the message of slab ``n`` of three in the initial state, as if it were of a step."""

    def make(slab: int, step: int = 0, skipped: int = 0) -> Any:
        message = frame_of(Slab(scenario, slab, 3), skipped)
        return msgpack.unpackb(msgpack.packb({**message, "step": step}))

    return make


@pytest.fixture
def make_frame(make_message: Callable[..., Any]) -> Callable[..., Frame]:
    """Make what is read from it."""

    def make(slab: int, step: int = 0, skipped: int = 0) -> Frame:
        return read_frame_untrusted(make_message(slab, step, skipped))

    return make


@pytest.fixture
def make_peer(scenario: Any) -> Callable[..., Peer]:
    """Make the peer of slab ``n`` of three as the servers introduce it."""

    def make(slab: int, **changes: Any) -> Peer:
        data = {**SlabJob(scenario, slab, 3, STEPS).data, **changes.pop("data", {})}
        values = {
            "id": 7 + 2 * slab,
            "packed": msgpack.packb(data),
            "addresses": (),
            "nonce": 1,
            "topics": (f"slab/{slab}",),
        }
        return Peer(**{**values, **changes})

    return make


@pytest.fixture
def run() -> RunIdentity:
    return RunIdentity(slabs=3, steps=STEPS, scenario="ab" * 32)


@pytest.fixture
def published(run: RunIdentity) -> PublishedSlab:
    return PublishedSlab(slab=1, **run._asdict())
