"""An endpoint as a node needs it: watched, sealed, both or neither."""

from sphtp.core.channel.endpoint import Endpoint
from sphtp.core.channel.gate.endpoint import SealedEndpoint, sealed_settings
from sphtp.core.channel.gate.security import Security
from sphtp.core.channel.settings import ChannelSettings
from sphtp.core.channel.watch.endpoint import make_endpoint
from sphtp.core.channel.watch.instrument import Instrument
from sphtp.core.entropy import Secrets
from sphtp.core.schema import Schema


def make_gated(
    secrets: Secrets,
    settings: ChannelSettings,
    peer_id: int = 0,
    schema: Schema | None = None,
    instrument: Instrument | None = None,
    security: Security | None = None,
    port: int = 0,
) -> Endpoint | SealedEndpoint:
    """Make an endpoint, behind a gate if there is security; raises ``SettingsError``.

    ``port`` is that of its socket, if it has one; its resets are good for channels there only.
    """
    if security is None:
        return make_endpoint(secrets, settings, peer_id, schema, instrument)
    endpoint = make_endpoint(secrets, sealed_settings(settings), peer_id, schema, instrument)
    return SealedEndpoint(endpoint, secrets, security, settings, port)
