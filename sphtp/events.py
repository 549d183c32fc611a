"""What happens: the classes that ``events()`` of clients and servers yields, and a channel's."""

from sphtp.core.channel.events import Closed as Closed
from sphtp.core.channel.events import CloseReason as CloseReason
from sphtp.core.channel.events import ConnectionEvent as ConnectionEvent
from sphtp.core.channel.events import Opened as Opened
from sphtp.core.control.events import ClientChanged as ClientChanged
from sphtp.core.control.events import ClientEntered as ClientEntered
from sphtp.core.control.events import ClientEvent as ClientEvent
from sphtp.core.control.events import ClientLeft as ClientLeft
from sphtp.core.control.events import ClientSuspected as ClientSuspected
from sphtp.core.control.events import Established as Established
from sphtp.core.control.events import IdLost as IdLost
from sphtp.core.control.events import Left as Left
from sphtp.core.control.events import MemberEntered as MemberEntered
from sphtp.core.control.events import MemberLeft as MemberLeft
from sphtp.core.control.events import PeerChanged as PeerChanged
from sphtp.core.control.events import PeerEntered as PeerEntered
from sphtp.core.control.events import PeerLeft as PeerLeft
from sphtp.core.control.events import PeerUnknown as PeerUnknown
from sphtp.core.control.events import Refused as Refused
from sphtp.core.control.events import ServerEntered as ServerEntered
from sphtp.core.control.events import ServerEvent as ServerEvent
from sphtp.core.control.events import ServerLeft as ServerLeft
from sphtp.core.control.events import StateChanged as StateChanged
from sphtp.core.control.events import Suspended as Suspended
from sphtp.core.control.events import UserMessage as UserMessage
from sphtp.core.control.events import ViewChanged as ViewChanged
