"""Requests: send one to three workers, take the first reply, and cancel the other two."""

import trio

import sphtp

SECONDS = {"ada": 0.05, "bob": 5.0, "cleo": 60.0}  # for each worker to compute a cell


class UnknownCellError(sphtp.RequestError):
    pass


async def work(
    server: sphtp.ServerAddress, name: str, *, task_status: trio.TaskStatus[None]
) -> None:
    async def pressure(request: sphtp.Request) -> str:
        if request.value > 99:
            raise UnknownCellError(f"the last cell is 99, not {request.value}")
        try:
            await trio.sleep(SECONDS[name])
        finally:
            print(f"{name} is done with cell {request.value}")
        return f"1013 hPa, says {name}"

    async with sphtp.open_client(server, name=name) as client:
        await client.serve("pressure", pressure, task_status=task_status)


async def ask_all(client: sphtp.Client, cell: int) -> None:
    async def ask(name: str) -> None:
        print(await client.request(name, "pressure", cell))
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for name in SECONDS:
            nursery.start_soon(ask, name)


async def main() -> None:
    async with (
        sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        sphtp.open_client(server.address) as client,
        trio.open_nursery() as nursery,
    ):
        for name in SECONDS:
            await nursery.start(work, server.address, name)
        await ask_all(client, 7)
        with trio.move_on_after(0.5):
            await client.request("cleo", "pressure", 8)
        try:
            await client.request("ada", "pressure", 100, errors=[UnknownCellError])
        except UnknownCellError as error:
            print("refused:", error)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
