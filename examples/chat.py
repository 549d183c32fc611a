"""A chat: members see peers enter and leave, and their lines; a late member gets earlier ones."""

import trio

import sphtp
from sphtp.events import PeerEntered, PeerLeft

# The reply of each member to a line, so that the chat runs and ends by itself.
SCRIPTS = {
    "ada": {"": "How far is the fluid?", "Hello, all!": "I have to go. Bye!"},
    "bob": {"How far is the fluid?": "At step 300."},
    "cleo": {"At step 300.": "Hello, all!"},
}


async def chat(server: sphtp.ServerAddress, name: str) -> None:
    script = SCRIPTS[name]
    async with (
        sphtp.open_client(server, name=name) as client,
        client.publish("chat") as source,
        client.subscribe("chat", late_join=True) as lines,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(show_presence, client, nursery.cancel_scope)
        if "" in script:
            await source.send(script[""])
        async for line in lines:
            if isinstance(line, sphtp.streams.TopicMessage):
                print(f"{name:>5} | {line.peer.name}: {line.value}")
                if reply := script.get(line.value):
                    await source.send(reply)
                if reply and "Bye" in reply:
                    nursery.cancel_scope.cancel()


async def show_presence(client: sphtp.Client, chat: trio.CancelScope) -> None:
    with client.events() as events:
        async for event in events:
            if isinstance(event, PeerEntered):
                print(f"{client.name:>5} | {event.peer.name} enters")
            elif isinstance(event, PeerLeft):
                print(f"{client.name:>5} | {event.peer.name} leaves")
                chat.cancel()


async def main() -> None:
    async with (
        sphtp.open_server("tcp://127.0.0.1:0", new_cluster=True) as server,
        trio.open_nursery() as nursery,
    ):
        for name in SCRIPTS:
            nursery.start_soon(chat, server.address, name)
            await trio.sleep(0.2)


if __name__ == "__main__":
    trio.run(main)
