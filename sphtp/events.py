"""Events: the classes that ``events()`` of clients and servers yields, and a channel's."""

from sphtp.core.channel.lifecycle import Closed as Closed
from sphtp.core.channel.lifecycle import CloseReason as CloseReason
from sphtp.core.channel.lifecycle import ConnectionEvent as ConnectionEvent
from sphtp.core.channel.lifecycle import Opened as Opened
from sphtp.core.control.events import ClientEvent as ClientEvent
from sphtp.core.control.events import Established as Established
from sphtp.core.control.events import IdLost as IdLost
from sphtp.core.control.events import JoinFailing as JoinFailing
from sphtp.core.control.events import Left as Left
from sphtp.core.control.events import PeerChanged as PeerChanged
from sphtp.core.control.events import PeerEntered as PeerEntered
from sphtp.core.control.events import PeerLeft as PeerLeft
from sphtp.core.control.events import PeerSuspected as PeerSuspected
from sphtp.core.control.events import PeerUnknown as PeerUnknown
from sphtp.core.control.events import Refused as Refused
from sphtp.core.control.events import ServerEntered as ServerEntered
from sphtp.core.control.events import ServerEvent as ServerEvent
from sphtp.core.control.events import ServerLeft as ServerLeft
from sphtp.core.control.events import StateChanged as StateChanged
from sphtp.core.control.events import Suspended as Suspended
from sphtp.core.control.events import UserMessage as UserMessage
from sphtp.core.control.events import ViewChanged as ViewChanged
