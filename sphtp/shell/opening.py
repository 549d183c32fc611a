"""Opening a node: its socket, its identity, and what watches it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random, SystemRandom
from typing import TYPE_CHECKING

import trio

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.endpoint import SealedEndpoint, sealed_settings
from sphtp.core.channel.gate.security import SEALED, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.watch.endpoint import make_endpoint
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.schema import Schema
from sphtp.errors import SettingsError
from sphtp.shell.encoding import encoding_for
from sphtp.shell.instruments import watching
from sphtp.shell.lifetime import running
from sphtp.shell.memory import keep_freed_memory
from sphtp.shell.node import Node
from sphtp.shell.udp import UdpSocket

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec


@asynccontextmanager
async def open_node(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    peer_id: int = 0,
    settings: ChannelSettings | None = None,
    messages: "MessageCodec | None" = None,
    security: Security | None = SEALED,
    receive_loss: float = 0.0,
    seed: int | None = None,
    instruments: Sequence[Instrument] = (),
) -> AsyncIterator[Node]:
    """Bind a UDP socket for the length of the block; leaving it aborts the channels still open.

    Leaving takes up to ``linger`` seconds when a peer has closed a channel shortly before.

    Args:
        host, port: where to bind; port 0 takes any that is free.
        peer_id: this node's id in a cluster, 0 when it is in none.
        settings: limits and timers of its channels.
        messages: the types that all its channels carry, of ``sphtp.messages``; both sides of a
            channel need the same. By default anything that msgpack carries.
        security: who it is and whom it lets in; None sends in the clear, to nodes that do so, too.
        receive_loss: the share of datagrams to throw away on receipt, to try out what loss does.
        seed: makes random choices, that loss among them, repeatable; for tests. Keys that follow
            from a seed are no secret.
        instruments: are told what happens in it and its channels.

    Raises:
        UdpAddressError: the address cannot be bound; the message names it.
        SettingsError: ``receive_loss`` is not a share.
    """
    if not 0 <= receive_loss < 1:
        raise SettingsError(f"receive_loss is {receive_loss}; allowed is 0 to less than 1")
    keep_freed_memory()
    entropy = SystemRandom() if seed is None else Random(seed)
    drop = _losing(receive_loss, seed) if receive_loss else None
    settings = settings or ChannelSettings()
    schema = Schema(messages.describe() if messages else ())
    with UdpSocket(host, port, drop) as udp, watching(instruments, udp.address) as watch:
        endpoint = _make_endpoint(entropy, settings, peer_id, schema, watch, security)
        node = Node(udp, endpoint, encoding_for(messages))
        try:
            async with running(node._run), running(node._callbacks.run):  # noqa: SLF001
                yield node
        finally:
            node._close()  # noqa: SLF001
            with trio.move_on_after(settings.linger) as scope:
                scope.shield = True
                await node._linger()  # noqa: SLF001


def _make_endpoint(
    entropy: Random,
    settings: ChannelSettings,
    peer_id: int,
    schema: Schema,
    watch: Instrument | None,
    security: Security | None,
) -> Endpoint | SealedEndpoint:
    if security is None:
        return make_endpoint(entropy, settings, peer_id, schema, watch)
    endpoint = make_endpoint(entropy, sealed_settings(settings), peer_id, schema, watch)
    return SealedEndpoint(endpoint, entropy, security)


def _losing(share: float, seed: int | None) -> Callable[[], bool]:
    random = Random(seed)
    return lambda: random.random() < share
