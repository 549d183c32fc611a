"""Who is part of a simulation, as a watcher sees it."""

from dataclasses import replace

import msgpack
import pytest

from sphtp_client.watch.part import part_of


def test_a_peer_that_publishes_its_slab_is_part_of_a_run(make_peer):
    part, other = part_of(make_peer(1)), part_of(make_peer(2))
    assert part is not None
    assert other is not None
    assert (part.slab, other.slab) == (1, 2)
    assert part.run == other.run
    assert part.run.slabs == 3


def test_another_scenario_is_another_run(make_peer):
    part, other = part_of(make_peer(1)), part_of(make_peer(1, data={"scenario": "other"}))
    assert part is not None
    assert other is not None
    assert part.run != other.run


@pytest.mark.parametrize(
    "data",
    [
        {"slab": 3},
        {"slab": -1},
        {"slab": "1"},
        {"slab": True},
        {"slabs": 0},
        {"steps": -1},
        {"scenario": "x" * 65},
        {"scenario": None},
    ],
)
def test_who_talks_nonsense_is_no_part(make_peer, data):
    assert part_of(make_peer(1, data=data)) is None


def test_who_says_nothing_or_publishes_nothing_is_no_part(make_peer):
    peer = make_peer(1)
    assert part_of(peer) is not None
    assert part_of(replace(peer, packed=b"")) is None
    assert part_of(replace(peer, packed=msgpack.packb(["slab"]))) is None
    assert part_of(replace(peer, topics=())) is None
    assert part_of(replace(peer, topics=("slab/2",))) is None
