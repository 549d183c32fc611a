"""SIGKILL: whoever is left goes on, and who comes back finds its place on its old ports."""

import pytest
import trio

from tests.chaos.actors import EXPIRY
from tests.chaos.stage import open_stage

pytestmark = pytest.mark.chaos


@pytest.mark.soak
async def test_a_killed_server_is_voted_out_and_comes_back_on_its_ports(seed: int) -> None:
    async with open_stage(seed) as stage:
        left, right = await stage.server("left"), await stage.server("right")
        speaker, _ = await stage.speaker_and_listener()
        before = await stage.census()
        ports = left.listens_at
        left.program.kill()
        await right.program.heard("server left", reason="expired")
        await stage.converged()
        await stage.begin(left)
        assert left.listens_at == ports
        await stage.converged()
        await stage.flowing(speaker)
        await stage.back_to(before)
        assert len(speaker.program.of("speaking")) == 1, "channels do not pass through servers"
        await stage.finish()


@pytest.mark.soak
async def test_a_peer_that_starts_again_on_its_port_is_spoken_to_again(seed: int) -> None:
    async with open_stage(seed) as stage:
        await stage.server("server")
        speaker, listener = await stage.speaker_and_listener()
        before = await stage.census()
        (old, port), mark = (listener.id, listener.first["port"]), len(speaker.program.lines)
        listener.program.kill()
        killed_at = trio.current_time()
        await listener.program.ended()
        await stage.begin(listener)
        assert listener.first["port"] == port
        # It is told that its channel led to somebody who is gone, and not left to believe in it.
        await speaker.program.heard("stopped speaking", after=mark)
        assert trio.current_time() < killed_at + 3 * EXPIRY
        await speaker.program.heard("speaking", after=mark, to=listener.id)
        assert listener.id != old
        await stage.converged()
        await stage.flowing(speaker)
        await stage.back_to(before)
        await stage.finish()


@pytest.mark.soak
async def test_a_killed_peer_is_told_as_gone_within_two_seconds(seed: int) -> None:
    async with open_stage(seed, expiry=10.0) as stage:
        servers = [await stage.server(name) for name in ("left", "right")]
        listener = await stage.peer("listener")
        await stage.converged()
        killed_at = trio.current_time()
        listener.program.kill()
        for server in servers:
            await server.program.heard("client left", client=listener.id, reason="expired")
        assert trio.current_time() < killed_at + 2.0
        await stage.finish()


@pytest.mark.soak
async def test_what_a_killed_speaker_was_told_to_have_arrived_has_arrived(seed: int) -> None:
    async with open_stage(seed) as stage:
        server = await stage.server("server")
        listener = await stage.peer("listener")
        speaker = await stage.peer("speaker", to=["listener"], pace=0)
        await stage.converged()
        await stage.flowing(speaker, 500)
        before = await stage.census()
        for _ in range(3):
            mark = len(listener.program.lines), len(server.program.lines)
            speaker.program.kill()
            await listener.program.heard("stopped hearing", after=mark[0])
            await server.program.heard("client left", after=mark[1])
            await stage.begin(speaker)
            await stage.converged()
            await stage.flowing(speaker, 500)
        await stage.back_to(before)
        await stage.finish()


@pytest.mark.soak
async def test_peers_outlive_all_servers_and_keep_their_ids(seed: int) -> None:
    async with open_stage(seed) as stage:
        servers = [await stage.server(name) for name in ("left", "right")]
        speaker, listener = await stage.speaker_and_listener()
        before, ids = await stage.census(), (speaker.id, listener.id)
        for server in servers:
            server.program.kill()
        for peer in (speaker, listener):
            await peer.program.heard("Suspended")
        await stage.flowing(speaker)
        for server in servers:
            await stage.begin(server)
        await stage.converged()
        assert (speaker.id, listener.id) == ids
        assert len(speaker.program.of("speaking")) == 1
        await stage.back_to(before)
        await stage.finish()
