"""Groups in lock step: the object that ``client.join`` gives, its members, data and events."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphtp.shell.group import Contributions as Contributions
    from sphtp.shell.group import GroupMember as GroupMember
    from sphtp.shell.group import LockstepGroup as LockstepGroup
    from sphtp.shell.group import MemberDied as MemberDied
    from sphtp.shell.group import MemberJoined as MemberJoined
    from sphtp.shell.group import MemberLeft as MemberLeft
    from sphtp.shell.group import MembershipEvent as MembershipEvent
else:
    from sphtp._lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
