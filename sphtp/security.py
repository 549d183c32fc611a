"""Security: keys, secrets and certificates, their files, and the peers that are admitted."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphtp.core.channel.security import Security as Security
    from sphtp.core.secure.identity import format_key as format_key
    from sphtp.core.secure.identity import parse_key as parse_key
    from sphtp.core.secure.signing import ClusterKey as ClusterKey
    from sphtp.core.secure.signing import ServerKey as ServerKey
    from sphtp.shell.config import ClusterSecurity as ClusterSecurity
    from sphtp.shell.keys import allow_only as allow_only
    from sphtp.shell.keys import load_identity as load_identity
    from sphtp.shell.keys import load_public_keys as load_public_keys
    from sphtp.shell.keys import load_secret as load_secret
    from sphtp.shell.keys import load_server_key as load_server_key
    from sphtp.shell.tls import Tls as Tls
else:
    from sphtp._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
