"""Settings: the parts of a `Config`. Each part checks its values when it is made."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphtp.core.channel.security import HandshakeLimits as HandshakeLimits
    from sphtp.core.channel.settings import ChannelSettings as ChannelSettings
    from sphtp.core.channel.settings import Lane as Lane
    from sphtp.core.control.settings import ClientLimits as ClientLimits
    from sphtp.core.control.settings import ControlTimers as ControlTimers
    from sphtp.core.control.settings import ServerLimits as ServerLimits
    from sphtp.core.nat import TurnServer as TurnServer
    from sphtp.core.stream.settings import Backoff as Backoff
    from sphtp.core.stream.settings import StreamSettings as StreamSettings
    from sphtp.shell.impairment import Impairment as Impairment
else:
    from sphtp._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
