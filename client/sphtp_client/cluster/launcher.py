"""The order of a cluster run: servers, then peers and the reference, until the end or a signal."""

from collections.abc import Callable

import trio

from sphtp_client.cluster.plan import ClusterPlan
from sphtp_client.cluster.process import Patience
from sphtp_client.cluster.run_status import Board, Role, Seat
from sphtp_client.cluster.supervisor import Supervisor, open_supervisor
from sphtp_client.stopping import run_until_stopped
from sphtp_client.verdict import Verdict

SERVER_START = 20.0  # seconds until a server must have said that it listens


async def conduct(
    plan: ClusterPlan, board: Board, changed: Callable[[], None], patience: Patience | None = None
) -> Verdict | None:
    """Carry out a plan; return who ended it when a signal did. No process is left afterwards."""

    async def perform() -> None:
        async with open_supervisor(board, changed, patience) as supervisor:
            await _perform(plan, supervisor)

    return await run_until_stopped(perform)


async def _perform(plan: ClusterPlan, supervisor: Supervisor) -> None:
    addresses = await _start_servers(plan, supervisor)
    if len(addresses) < plan.servers:
        return
    supervisor.board.news.append(f"to watch it: {plan.watching(addresses)}")
    for slab in range(plan.clients):
        await supervisor.start(plan.client(slab, addresses))
    if plan.verify:
        await supervisor.start(plan.reference())
    board = supervisor.board
    await supervisor.wait_until(lambda: _all_done(board) or _any_broken(board))
    if _any_broken(board):
        # The others find out by themselves who left and say so, which is worth waiting for.
        with trio.move_on_after(plan.grace):
            await supervisor.wait_until(lambda: not any(s.alive for s in board.of(Role.CLIENT)))


async def _start_servers(plan: ClusterPlan, supervisor: Supervisor) -> list[str]:
    """Start the first server, then those that join it; return the addresses they listen on."""
    first = await supervisor.start(plan.server(1, None))
    await _wait_for_servers([first], supervisor)
    if first.address is None:
        return []
    join = first.address
    others = [await supervisor.start(plan.server(n, join)) for n in range(2, plan.servers + 1)]
    await _wait_for_servers(others, supervisor)
    return [seat.address for seat in (first, *others) if seat.address is not None]


async def _wait_for_servers(seats: list[Seat], supervisor: Supervisor) -> None:
    with trio.move_on_after(SERVER_START):
        await supervisor.wait_until(lambda: all(seat.address or not seat.alive for seat in seats))
    for seat in seats:
        if seat.alive and seat.address is None:
            seat.failure = f"did not say within {SERVER_START:.0f} s that it listens"


def _all_done(board: Board) -> bool:
    return not any(seat.alive for seat in _workers(board))


def _any_broken(board: Board) -> bool:
    return any(seat.exit is not None and seat.exit.code != 0 for seat in _workers(board))


def _workers(board: Board) -> list[Seat]:
    return board.of(Role.CLIENT) + board.of(Role.REFERENCE)
