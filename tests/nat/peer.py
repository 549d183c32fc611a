"""A client behind NAT. ``peer.py NAME [OTHER [SECONDS]]`` echoes, or dials OTHER and sends.

With ``RELAY`` in the environment it has a relay.
"""

import json
import os
import sys

import trio

from sphtp import Config, open_client
from sphtp.config import ControlTimers, TurnServer
from sphtp.errors import SphtpError
from tests.nat.networks import RELAY_USER, SERVER


async def answer(channel) -> None:
    try:
        async for message in channel:
            await channel.send(message)
    except trio.BrokenResourceError:
        pass


async def main() -> None:
    name, other, seconds = sys.argv[1], *([*sys.argv[2:], "", "0"])[:2]
    relay = TurnServer(SERVER, *RELAY_USER) if "RELAY" in os.environ else None
    config = Config(timers=ControlTimers(start_timeout=20), relay=relay)
    async with open_client(f"tcp://{SERVER}:8764", name=name, config=config) as client:
        if not other:
            print("here", flush=True)
            await client.serve_channels(answer)
        # Servers know its public address, too, a moment later.
        peer = await client.wait_for_peer(lambda it: it.name == other and len(it.addresses) > 1)
        began = trio.current_time()
        try:
            async with client.open_channel(peer.id) as channel:
                opened = trio.current_time() - began
                addresses = {channel.peer_address}
                print(json.dumps({"opened": opened, "address": channel.peer_address}), flush=True)
                number, until = 0, trio.current_time() + float(seconds)
                while number == 0 or trio.current_time() < until:
                    await channel.send(number)
                    assert await channel.receive() == number
                    number += 1
                    await trio.sleep(0.01)
                addresses.add(channel.peer_address)
                print(json.dumps({"messages": number, "addresses": sorted(addresses)}), flush=True)
        except SphtpError as error:
            print(json.dumps({"error": str(error)}), flush=True)


trio.run(main)
