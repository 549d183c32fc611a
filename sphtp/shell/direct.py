"""Two peers without a server: one opens a node and tells where, the other dials it."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.security import SEALED, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.shell.addresses import local_address_towards
from sphtp.shell.channel import Channel
from sphtp.shell.lifetime import block
from sphtp.shell.opening import open_node

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec


@block
async def open_channel(
    host: str,
    port: int,
    *,
    settings: ChannelSettings | None = None,
    messages: "MessageCodec | None" = None,
    key: bytes | None = None,
    pin: Callable[[bytes], bool] | None = None,
    security: Security | None = SEALED,
    instruments: Sequence[Instrument] = (),
) -> AsyncIterator[Channel]:
    """Open a channel to the node at ``host``, from a node of its own, for the length of the block.

    ``key`` and ``pin``, of which either says who has to answer, are those of ``Node.open_channel``;
    the others are those of ``open_node``. Raises as both do.
    """
    here = await local_address_towards(host, port)
    async with (
        open_node(
            here,
            settings=settings,
            messages=messages,
            security=security,
            instruments=instruments,
        ) as node,
        node.open_channel(host, port, key=key, pin=pin) as channel,
    ):
        yield channel
