"""An endpoint behind its gate: to those who use it, an endpoint like any other."""

from collections.abc import Sequence
from typing import Final

from sphtp.core.channel.connection import Connection
from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.counters import GateCounters
from sphtp.core.channel.gate.gate import Gate
from sphtp.core.channel.gate.security import Security
from sphtp.core.channel.gate.trust import Expectation
from sphtp.core.channel.gate.wire import SEAL_OVERHEAD
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.statistics import EndpointCounters
from sphtp.core.datagrams import Address
from sphtp.core.entropy import Secrets
from sphtp.core.schema import Schema
from sphtp.core.secure.identity import Identity
from sphtp.errors import SettingsError, UnreachableError

PATIENCE: Final = 0.5
"""How much of the silence that ends an attempt passes until one that was asked for its name begins
anew: the other half has to do for that."""


class SealedEndpoint:
    """All sealed channels behind one socket; inputs, commands and outputs are ``Endpoint``'s."""

    def __init__(
        self,
        endpoint: Endpoint,
        secrets: Secrets,
        security: Security,
        settings: ChannelSettings | None = None,
        port: int = 0,
    ) -> None:
        self._trust = security.judge
        self._endpoint = endpoint
        identity = security.identity or Identity.draw(secrets)
        patience = (settings or ChannelSettings()).connect_timeout * PATIENCE
        self._gate = Gate(endpoint, secrets, identity, security, patience, port)
        endpoint.observe(self._forget)
        # What the gate is not in the way of is the endpoint's own.
        self.poll_active = endpoint.poll_active
        self.poll_incoming = endpoint.poll_incoming
        self.serve = endpoint.serve
        self.touch = endpoint.touch
        self.close = endpoint.close
        self.handle_row_untrusted = self._gate.handle_row_untrusted
        self.handle_datagram_untrusted = self._gate.handle_datagram_untrusted
        self.handle_too_large = self._gate.handle_too_large
        self.handle_timeout = self._gate.handle_timeout
        self.poll_transmit = self._gate.poll_transmit
        self.poll_timeout = self._gate.poll_timeout

    @property
    def peer_id(self) -> int:
        """This side's id in the cluster, or 0."""
        return self._endpoint.peer_id

    @peer_id.setter
    def peer_id(self, value: int) -> None:
        self._endpoint.peer_id = value

    @property
    def counters(self) -> EndpointCounters:
        """What reached no connection, and what was refused."""
        return self._endpoint.counters

    @property
    def gate_counters(self) -> GateCounters:
        """What came to the gate, and was not let in."""
        return self._gate.counters

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Every connection that has not ended, in the order of opening."""
        return self._endpoint.connections

    @property
    def has_incoming(self) -> bool:
        """Whether ``poll_incoming`` has a channel to give."""
        return self._endpoint.has_incoming

    def dial(
        self,
        now: float,
        candidates: Sequence[Address],
        wanted: int = 0,
        expectation: Expectation | None = None,
        *,
        schema: Schema | None = None,
    ) -> Connection:
        """Open a channel to the peer that answers at one of its addresses.

        It must be the one expected: by default the one that trust knows by the id ``wanted``.
        Raises ``UnreachableError`` when what that one is known by is no key.
        """
        expected = expectation or self._expect(wanted)
        connection = self._endpoint.dial(now, candidates, wanted, schema=schema)
        self._gate.caller.expect(connection.opening.token, expected)
        return connection

    def _expect(self, wanted: int) -> Expectation:
        try:
            return Expectation(self._trust.key_of(wanted))
        except SettingsError as error:
            text = f"peer {wanted:#010x} cannot be spoken with: its {error}"
            raise UnreachableError(text) from error

    def _forget(self, connection: Connection) -> None:
        self._gate.forget(connection.connection_id)
        if connection.opening.is_dialled:
            self._gate.caller.forget(connection.opening.token)


def sealed_settings(settings: ChannelSettings) -> ChannelSettings:
    """What an endpoint behind a gate is told of its sizes. Raises ``SettingsError``."""
    return settings.enveloped(SEAL_OVERHEAD)
