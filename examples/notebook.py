"""A notebook: cells that watch a running simulation, without async or await.

Each `# %%` begins a cell in VS Code, Spyder and Jupyter (with Jupytext).
"""

# %% Enter the cluster; the client stays open from cell to cell.
import math
from contextlib import ExitStack
from threading import Thread

from sphtp import blocking
from sphtp.streams import TopicMessage

stack = ExitStack()
server = stack.enter_context(blocking.open_server("tcp://127.0.0.1:0", new_cluster=True))
client = stack.enter_context(blocking.open_client(server.address, name="notebook"))


# %% A simulation to watch: a pendulum that loses energy. Usually it is another program.
def simulate() -> None:
    with (
        blocking.open_client(server.address, name="pendulum") as pendulum,
        pendulum.publish("angle") as source,
    ):
        source.wait_for_receivers()
        for step in range(120):
            source.send(math.exp(-step / 60) * math.cos(step / 6))


simulation = Thread(target=simulate)
simulation.start()

# %% Look at it.
peer = client.wait_for_peer("pendulum")
angles: list[float] = []
with client.subscribe("angle") as subscription:
    while len(angles) < 120:
        item = subscription.receive()
        if isinstance(item, TopicMessage):
            angles.append(item.value)

# %% Draw it: a point for every second step.
for height in range(5, -6, -1):
    line = "".join("o" if round(5 * angle) == height else " " for angle in angles[::2])
    print(f"{height / 5:4.1f} {line}".rstrip())
print(f"{peer.name} swings between {min(angles):.2f} and {max(angles):.2f}")

# %% Leave.
simulation.join()
stack.close()
