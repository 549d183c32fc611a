"""A full disk under a log: the log has a gap at worst, and nothing else has."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

import sphtp
from tests.chaos.actors import Server
from tests.chaos.disk import Disk, ShortFile, small_disk
from tests.chaos.stage import open_stage

pytestmark = pytest.mark.chaos

CROWD = 15
"""Clients that come and go: more lines than fit what is left of a full disk's last block."""


@pytest.mark.soak
async def test_a_server_goes_on_while_its_log_has_no_room(tmp_path: Path, seed: int) -> None:
    await fill_the_disk(small_disk, tmp_path, seed)


@pytest.mark.soak
async def test_a_server_goes_on_while_its_log_may_not_grow(tmp_path: Path, seed: int) -> None:
    await fill_the_disk(ShortFile, tmp_path, seed)


async def fill_the_disk(make: Callable[[Path], Disk], folder: Path, seed: int) -> None:
    async with open_stage(seed) as stage:
        disk = make(folder)
        server = await stage.server("server", disk=disk)
        pid = server.program.pid
        speaker, _ = await stage.speaker_and_listener()
        before = await stage.census()
        disk.fill(pid)
        await crowd(server)
        await stage.converged()
        await stage.flowing(speaker)
        assert len(server.program.of("client left")) < CROWD, "the disk was not full"
        disk.clear(pid)
        newcomer = await stage.peer("newcomer")
        await server.program.heard("client entered", client=newcomer.id)
        assert len(server.program.of("client left")) == CROWD
        assert not server.program.of("log lines lost")
        await newcomer.leave()
        await stage.converged()
        await stage.back_to(before)
        disk.fill(pid)
        await stage.finish()


async def crowd(server: Server) -> None:
    """Let clients come and go."""

    async def come_and_go() -> None:
        async with sphtp.open_client(server.address):
            pass

    async with trio.open_nursery() as nursery:
        for _ in range(CROWD):
            nursery.start_soon(come_and_go)


@pytest.mark.soak
async def test_peers_speak_on_when_their_qlog_has_no_room(seed: int) -> None:
    async with open_stage(seed) as stage:
        await stage.server("server")
        listener = await stage.peer("listener", qlog="/dev/full")
        speaker = await stage.peer("speaker", to=["listener"], qlog="/dev/full")
        await stage.converged()
        await stage.flowing(speaker, 500)
        await stage.finish()
        for peer in (listener, speaker):
            assert peer.program.of("ended", log_failed=True)
            (complaint,) = peer.program.complaints
            assert "No space left on device; no more is written" in complaint
        assert len(speaker.program.of("speaking")) == 1
