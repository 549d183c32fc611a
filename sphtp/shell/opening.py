"""Opening a node: its socket, its identity, and what watches it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.instrument import Instrument
from sphtp.core.channel.security import SEALED, Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.schema import Schema
from sphtp.shell.encoding import encoding_for
from sphtp.shell.impairment import UNIMPAIRED, Impairment, open_socket
from sphtp.shell.instruments import watching
from sphtp.shell.lifetime import block
from sphtp.shell.node import Node
from sphtp.shell.questions import asked
from sphtp.shell.randomness import SECRETS, decisions

if TYPE_CHECKING:
    from sphtp.core.messages import MessageCodec


@block
async def open_node(
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    peer_id: int = 0,
    settings: ChannelSettings | None = None,
    messages: "MessageCodec | None" = None,
    security: Security | None = SEALED,
    impairment: Impairment = UNIMPAIRED,
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
        impairment: what goes wrong with datagrams on receipt, to try out a bad network.
        seed: makes random choices, those of ``impairment`` among them, repeatable; for tests. No
            key, token or nonce follows from it.
        instruments: are told what happens in it and its channels.

    Raises:
        UdpAddressError: the address cannot be bound; the message names it.
    """
    settings, security = settings or ChannelSettings(), _guarded(security)
    schema = Schema(messages.describe() if messages else ())
    with (
        open_socket(host, port, impairment, seed) as udp,
        watching(instruments, udp.address) as watch,
    ):
        endpoint = Endpoint(
            SECRETS,
            settings,
            peer_id,
            schema,
            security=security,
            port=udp.address[1],
            observer=watch,
        )
        encoding = encoding_for(messages)
        node = Node(udp, endpoint, decisions(seed), SECRETS, encoding, settings.busy_poll)
        try:
            async with node._running():  # noqa: SLF001
                yield node
        finally:
            node._close()  # noqa: SLF001
            with trio.move_on_after(settings.linger) as scope:
                scope.shield = True
                await node._linger()  # noqa: SLF001
            node._loop.close()  # noqa: SLF001


def _guarded(security: Security | None) -> Security | None:
    """The same security, which no error in what the program says of keys brings down."""
    if security is None or security.allow is None:
        return security
    return replace(security, allow=asked("allow", security.allow))
