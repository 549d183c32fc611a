"""The life of a member of a group.

A member is FORMING until a coordinator has installed it. It is ENTERING until the others have
installed it, too, and it has the state of the simulation, if a member gives one. Then it is a
MEMBER, and takes part in steps. A member that leaves is LEAVING until the others need none of the
contributions that it holds.
"""

from typing import Final

from sphtp.core.fsm import Machine, Name, Row


class GroupState(Name):
    """The state of a member."""

    FORMING = "forming"
    ENTERING = "entering"
    MEMBER = "member"
    LEAVING = "leaving"
    ENDED = "ended"


class GroupEvent(Name):
    """An event of a member's life."""

    INSTALLED = "a coordinator has installed the members"
    ADMITTED = "all others have installed this member, and it has the state, if there is one"
    LEAVE = "the application leaves the group"
    RELEASED = "each other member within reach has released this one"
    FAILED = "an error has ended this member's part in the group"


class GroupAction(Name):
    """The actions of the table: there are none, since ``GroupMachine`` chooses its actions."""


_S, _E = GroupState, GroupEvent

_ROWS: Final[tuple[Row[GroupState, GroupEvent, GroupAction], ...]] = (
    Row(_S.FORMING, _E.INSTALLED, _S.ENTERING, (), "a coordinator has made it a member"),
    Row(_S.FORMING, _E.LEAVE, _S.ENDED, (), "no member waits for it"),
    Row(_S.FORMING, _E.FAILED, _S.ENDED, (), "it takes part in no step yet"),
    Row(_S.ENTERING, _E.INSTALLED, _S.ENTERING, (), "members have changed meanwhile"),
    Row(_S.ENTERING, _E.ADMITTED, _S.MEMBER, (), "nothing is missing for its first step"),
    Row(_S.ENTERING, _E.LEAVE, _S.LEAVING, (), "others may wait for its contribution"),
    Row(_S.ENTERING, _E.FAILED, _S.ENDED, (), "the others count it as dead"),
    Row(_S.MEMBER, _E.INSTALLED, _S.MEMBER, (), "members have changed"),
    Row(_S.MEMBER, _E.LEAVE, _S.LEAVING, (), "others may need contributions that it holds"),
    Row(_S.MEMBER, _E.FAILED, _S.ENDED, (), "the others count it as dead"),
    Row(_S.LEAVING, _E.INSTALLED, _S.LEAVING, (), "members have changed"),
    Row(_S.LEAVING, _E.RELEASED, _S.ENDED, (), "no member needs contributions that it holds"),
    Row(_S.LEAVING, _E.FAILED, _S.ENDED, (), "the others do not wait for it"),
)

GROUP: Final[Machine[GroupState, GroupEvent, GroupAction]] = Machine(
    "member of a group",
    GroupState.FORMING,
    _ROWS,
    events=GroupEvent,
    final=frozenset({GroupState.ENDED}),
    refused={
        GroupState.FORMING: frozenset({_E.ADMITTED, _E.RELEASED}),
        GroupState.ENTERING: frozenset({_E.RELEASED}),
        GroupState.MEMBER: frozenset({_E.ADMITTED, _E.RELEASED}),
        GroupState.LEAVING: frozenset({_E.ADMITTED, _E.LEAVE}),
        GroupState.ENDED: frozenset(GroupEvent),
    },
)
