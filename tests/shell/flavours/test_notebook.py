"""A notebook in a real Jupyter kernel: blocking cells, ``await`` cells, and blocks over cells."""

from pathlib import Path

import pytest

CELLS = (
    """
from contextlib import AsyncExitStack, ExitStack
from sphtp import aio, blocking
""",
    """
stack = ExitStack()
server = stack.enter_context(blocking.open_server("tcp://127.0.0.1:0", new_cluster=True))
server.wait_active()
bob = stack.enter_context(blocking.open_client(server.address, data="Bob"))
""",
    """
later = AsyncExitStack()
ann = await later.enter_async_context(aio.open_client(server.address, data="Ann"))
peer = await ann.wait_for_peer(lambda it: it.data == "Bob")
channel = await later.enter_async_context(ann.open_channel(peer))
await channel.send("Hello")
""",
    """
incoming = bob.accept()
incoming.send(incoming.receive() + ", Ann")
print(await channel.receive())
""",
    """
await later.aclose()
stack.close()
""",
)


@pytest.mark.soak
@pytest.mark.filterwarnings("default")  # those of Jupyter's own code
def test_cells_of_a_notebook_share_a_client(tmp_path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(it) for it in CELLS])
    nbclient.execute(notebook, cwd=str(tmp_path), timeout=30)
    assert notebook.cells[3].outputs[0].text == "Hello, Ann\n"
