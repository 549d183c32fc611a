"""Measure the error of the cluster's time between processes of one machine.

All processes of a machine read one monotonic clock, so that the truth is known: the offset of the
cluster's time to that clock. A server defines it, and for it the offset is constant; a client
estimates it over loopback. Each process reads the monotonic clock, the cluster's time, and the
monotonic clock again, several times in a row, and takes the reading with the least in between. The
error of a client is its offset less the server's.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median, quantiles
from subprocess import PIPE, Popen
from time import monotonic
from typing import Any, Final

import click
import trio

import sphtp

TRIES: Final = 20
"""The number of readings in a row, of which one counts."""

MICROSECONDS: Final = 1e6


def _offset(clock: Any) -> tuple[float, float, float]:
    """Return the offset of the cluster's time, the doubt of this reading, and the clock's bound."""
    best = (0.0, float("inf"), 0.0)
    for _ in range(TRIES):
        early, (time, error), late = monotonic(), clock.read(), monotonic()
        if late - early < 2 * best[1]:
            best = (time - (early + late) / 2, (late - early) / 2, error)
    return best


async def _serve() -> None:
    """Run the server: print its address, and its offset at each line of input."""
    config = sphtp.Config()
    async with sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True, config=config) as server:
        await server.clock.wait_synchronized()
        _print(str(server.address))
        while await trio.to_thread.run_sync(sys.stdin.readline):
            _print(_offset(server.clock))


async def _follow(address: str, seconds: float, pause: float) -> None:
    """Run a client: print its offsets."""
    async with sphtp.open_client(address) as client:
        await client.clock.wait_synchronized()
        offsets = list[tuple[float, float, float]]()
        until = trio.current_time() + seconds
        while trio.current_time() < until:
            offsets.append(_offset(client.clock))
            await trio.sleep(pause)
        _print(offsets)


def _print(value: Any) -> None:
    click.echo(json.dumps(value))
    sys.stdout.flush()


@contextmanager
def _child(*options: str) -> Iterator[Popen[str]]:
    process = Popen([sys.executable, __file__, *options], stdin=PIPE, stdout=PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _line(process: Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def _ask(server: Popen[str]) -> tuple[float, float, float]:
    assert server.stdin is not None
    server.stdin.write("\n")
    server.stdin.flush()
    offset, doubt, error = _line(server)
    return offset, doubt, error


def _measure(clients: int, seconds: float, pause: float) -> dict[str, Any]:
    with ExitStack() as stack:
        server = stack.enter_context(_child("--serve"))
        address = _line(server)
        truth, doubt, _ = _ask(server)
        options = f"--address={address}", f"--seconds={seconds}", f"--pause={pause}"
        following = [stack.enter_context(_child(*options)) for _ in range(clients)]
        found = [_line(client) for client in following]
        moved = abs(_ask(server)[0] - truth)
    errors = [offset - truth for offsets in found for offset, _, _ in offsets]
    violations = sum(
        abs(offset - truth) > bound + own_doubt + doubt
        for offsets in found
        for offset, own_doubt, bound in offsets
    )
    sizes = [abs(error) * MICROSECONDS for error in errors]
    return {
        "readings": len(errors),
        "median_us": round(median(sizes), 1),
        "p99_us": round(quantiles(sizes, n=100)[98], 1),
        "largest_us": round(max(sizes), 1),
        "median_bound_us": round(
            median(bound for offsets in found for *_, bound in offsets) * MICROSECONDS, 1
        ),
        "each_client_median_us": [
            round(median(abs(offset - truth) for offset, *_ in offsets) * MICROSECONDS, 1)
            for offsets in found
        ],
        "out_of_bound": violations,
        "doubt_us": round((doubt + moved) * MICROSECONDS, 1),
    }


@click.command()
@click.option("--clients", type=click.IntRange(1), default=4, show_default=True)
@click.option("--seconds", type=float, default=20.0, show_default=True)
@click.option("--pause", type=float, default=0.05, show_default=True, help="Between two readings.")
@click.option("--serve", is_flag=True, hidden=True)
@click.option("--address", hidden=True)
def main(clients: int, seconds: float, pause: float, address: str | None, *, serve: bool) -> None:
    """Measure the error of the cluster's time at clients in processes of their own."""
    if serve:
        trio.run(_serve)
    elif address is not None:
        trio.run(_follow, address, seconds, pause)
    else:
        click.echo(json.dumps(_measure(clients, seconds, pause), indent=2))


if __name__ == "__main__":
    main()
