"""A network that falls in two, between servers and between peers, and grows together again.

By namespaces where the machine allows them, and else, as well as in any case once, by relays.
"""

import pytest

from tests.chaos.actors import EXPIRY, channel
from tests.chaos.networks import Network, open_network
from tests.chaos.relays import open_relays
from tests.chaos.stage import open_stage

pytestmark = pytest.mark.chaos

networks = pytest.mark.parametrize("network", [open_network, open_relays])


@pytest.mark.soak
async def test_a_cluster_cut_in_two_lives_on_as_two_and_becomes_one_again_by_relays(
    seed: int,
) -> None:
    await cut_in_two(open_relays, seed)


@pytest.mark.soak
async def test_a_cluster_cut_in_two_lives_on_as_two_and_becomes_one_again(seed: int) -> None:
    await cut_in_two(open_network, seed)


async def cut_in_two(network: Network, seed: int) -> None:
    async with network() as rooms, open_stage(seed, rooms) as stage:
        left, right = await stage.server("left", "left"), await stage.server("right", "right")
        listener = await stage.peer("listener", "right")
        speaker = await stage.peer("speaker", "left", to=["listener"])
        await stage.converged()
        await stage.flowing(speaker)
        before = await stage.census()
        await rooms.cut()
        await left.program.heard("server left", server=right.id, reason="expired")
        await right.program.heard("server left", server=left.id, reason="expired")
        await left.program.heard("client left", client=listener.id)
        await right.program.heard("client left", client=speaker.id)
        await speaker.program.heard("stopped speaking")
        assert not speaker.program.of("Suspended"), "its own server is there"
        await rooms.heal()
        await stage.converged()
        await stage.flowing(speaker)
        await stage.back_to(before)
        await stage.finish()


@pytest.mark.soak
@networks
async def test_servers_that_lose_each_other_do_not_part_peers(network: Network, seed: int) -> None:
    async with network() as rooms, open_stage(seed, rooms) as stage:
        left, right = await stage.server("left", "left"), await stage.server("right", "right")
        speaker, _ = await stage.speaker_and_listener()
        before = await stage.census()
        for _ in range(2):
            mark = len(left.program.lines)
            await rooms.cut()
            await left.program.heard("server left", after=mark, server=right.id)
            await stage.flowing(speaker)
            await rooms.heal()
            await stage.converged()
        assert len(speaker.program.of("speaking")) == 1
        await stage.back_to(before)
        await stage.finish()


@pytest.mark.soak
@networks
async def test_a_cut_that_heals_in_time_is_only_a_delay(network: Network, seed: int) -> None:
    async with network() as rooms, open_stage(seed, rooms) as stage:
        server = await stage.server("server", "left")
        patient = channel(10 * EXPIRY)
        listener = await stage.peer("listener", "right", channel=patient)
        speaker = await stage.peer("speaker", "left", to=["listener"], channel=patient)
        await stage.converged()
        await stage.flowing(speaker)
        for _ in range(3):
            mark = len(server.program.lines)
            await rooms.cut()
            await server.program.heard("client left", after=mark, client=listener.id)
            await rooms.heal()
            await stage.flowing(speaker)
            await stage.converged()
        assert len(speaker.program.of("speaking")) == 1
        await stage.finish()
