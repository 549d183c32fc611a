"""SIGSTOP, and SIGCONT when the others have given it up, or before."""

import pytest

from tests.chaos.stage import open_stage

pytestmark = pytest.mark.chaos


@pytest.mark.soak
async def test_a_peer_that_slept_for_too_long_comes_back(seed: int) -> None:
    async with open_stage(seed) as stage:
        server = await stage.server("server")
        speaker, listener = await stage.speaker_and_listener()
        before = await stage.census()
        mark = len(server.program.lines)
        listener.program.freeze()
        await server.program.heard("client left", client=listener.id, reason="expired")
        await speaker.program.heard("stopped speaking")
        listener.program.thaw()
        await server.program.heard("client entered", after=mark)
        await stage.converged()
        await stage.flowing(speaker)
        await stage.back_to(before)
        await stage.finish()


@pytest.mark.soak
async def test_a_speaker_that_slept_for_too_long_comes_back(seed: int) -> None:
    async with open_stage(seed) as stage:
        server = await stage.server("server")
        speaker, listener = await stage.speaker_and_listener()
        before = await stage.census()
        speaker.program.freeze()
        await server.program.heard("client left", client=speaker.id, reason="expired")
        await listener.program.heard("stopped hearing")
        speaker.program.thaw()
        await speaker.program.heard("stopped speaking")
        await stage.converged()
        await stage.flowing(speaker)
        await stage.back_to(before)
        await stage.finish()


@pytest.mark.soak
@pytest.mark.parametrize("name", ["founder", "second"])
async def test_a_server_that_slept_for_too_long_comes_back(name: str, seed: int) -> None:
    async with open_stage(seed) as stage:
        servers = {name: await stage.server(name) for name in ("founder", "second", "third")}
        speaker, _ = await stage.speaker_and_listener()
        before = await stage.census()
        frozen = servers.pop(name)
        frozen.program.freeze()
        for other in servers.values():
            await other.program.heard("server left", server=frozen.id, reason="expired")
        await stage.flowing(speaker)
        frozen.program.thaw()
        await stage.converged()
        await stage.flowing(speaker)
        await stage.back_to(before)
        assert len(speaker.program.of("speaking")) == 1
        await stage.finish()


@pytest.mark.soak
async def test_nobody_is_given_up_when_everybody_slept(seed: int) -> None:
    async with open_stage(seed) as stage:
        server = await stage.server("server")
        outsider = await stage.peer("outsider")
        speaker, _ = await stage.speaker_and_listener()
        ids = {peer.name: peer.id for peer in stage.peers}
        mark = len(server.program.lines)
        for actor in (server, *stage.peers[1:]):
            actor.program.freeze()
        # The one that is awake tells when the others have slept for longer than an expiry.
        await outsider.program.heard("Suspended")
        for actor in (server, *stage.peers[1:]):
            actor.program.thaw()
        await stage.converged()
        await stage.flowing(speaker)
        assert {peer.name: peer.id for peer in stage.peers} == ids
        assert not server.program.of("client left", after=mark)
        await stage.finish()


@pytest.mark.soak
async def test_a_nap_ends_nothing(seed: int) -> None:
    async with open_stage(seed, expiry=4.0) as stage:
        server = await stage.server("server")
        speaker, listener = await stage.speaker_and_listener()
        for _ in range(3):
            mark = len(server.program.lines)
            listener.program.freeze()
            await server.program.heard("client suspected", after=mark, client=listener.id)
            listener.program.thaw()
            await stage.flowing(speaker)
        assert len(speaker.program.of("speaking")) == 1
        assert not server.program.of("client left")
        await stage.finish()
