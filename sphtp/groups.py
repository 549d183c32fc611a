"""Names of groups in lock step: what ``client.join`` gives, and what its events are."""

from sphtp.shell.group import (
    Contributions,
    GroupMember,
    LockstepGroup,
    MemberDied,
    MemberJoined,
    MemberLeft,
    MembershipEvent,
)

__all__ = [
    "Contributions",
    "GroupMember",
    "LockstepGroup",
    "MemberDied",
    "MemberJoined",
    "MemberLeft",
    "MembershipEvent",
]
