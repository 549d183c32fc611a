"""Groups in lock step, whose members agree on the members of each step.

Theory of operation. At each step every member sends a contribution to every other member. The step
is complete when the contributions of all others have arrived. So no member is more than a step
ahead. As long as the members stay the same, they send nothing else: at a step of n members, each
sends n - 1 messages and receives n - 1.

The members have to agree on the members of each step. A member that dies may have sent its last
contribution to some members only, and the members detect its death at different times, or not at
all. The solution is virtual synchrony (Birman and Joseph 1987): before the members change, the
remaining members flush the contributions of the removed ones, so that all of them have the same.

**Seats.** Each member has a seat: it takes part in the steps from ``start`` on and before ``end``.
The members agree on these two numbers only: equal seats mean equal members in each step.

**The coordinator** is the first member, in the order of joining, to which a member's channel has
not been lost. A lost channel stays lost, so a member's coordinator only changes to later members.
The other members report lost channels to the coordinator.

**A change** takes one round trip. The coordinator sends FLUSH to all remaining members. From then
on these begin no step and accept nothing from removed members. They answer with STATE: the last
step that they began, and the contributions that they hold of the removed members. The coordinator
then decides the new seats:

- A dead member's contributions count up to the last one that any member has. A member that lacks
  one gets it with INSTALL. The dead member's seat ends after the step of the last one.
- A newcomer starts at the first step that no member can have reached. A member may have completed
  the last step that has begun, and its program may already compute for the members of the next one.

INSTALL carries the decision to all members. It is the same at every member, because one member made
it, from facts that can no longer change. A coordinator that dies meanwhile leaves a flush without
an end, or an INSTALL that only some members have. Its successor flushes again. The seats in the
answers show the earlier decision: an end or a start that any member has installed does not change.

**Each member follows one coordinator.** It answers the FLUSH of its own coordinator, and keeps the
FLUSH of other members for later. If two members lose the channel between them, both may still have
a channel to the coordinator. Each sends it a COMPLAINT about the other, and the coordinator removes
the member that the first COMPLAINT names. A COMPLAINT about the coordinator has no effect: the
coordinator has lost that channel itself, and removes the other member.

**A part of the group that is cut off** must not go on by itself, or there would be two simulations.
A change therefore needs a quorum: more than half of the members before it, or half of them with the
first. It also has a quorum if the servers report all missing members as gone, because the survivor
of two members is no majority. A member that cannot complete a change fails after
``AGREEMENT_TIMEOUT``, so that every change ends. A member that was frozen has lost its channels.
When it opens others, it gets EXCLUDED, and has to join again, as a new member.

**Leaving** needs no change by the coordinator. A member that leaves sends LEAVE after its last
contribution, with the step at which its seat ends. It stays until all others have completed its
last step. Until then it may be the only one that holds the contribution of a member that died.

**Entering.** A newcomer opens channels to all members, and announces these channels. It becomes a
member when all others have got INSTALL, and each of them has sent ADMITTED. Otherwise it could take
part in a step that the others make without it. At its first step, the first older member that has
the state of the simulation sends the state. If that member dies, the next one sends it, since no
member can complete the step without the newcomer.

**Founding** is the same change, from no members to ``size`` members or more. The client with the
lowest id founds the group. Each client follows only one founder at a time.

**The reaction to a death** is part of the agreement. With ``continue`` the steps go on without the
dead member. With ``raise`` the step at its end fails, at every member. With ``wait`` that step
waits for a newcomer of the same name, which gets the place of the dead member and starts at its
end; the others then send it their contributions to that step.

**Neighbours.** A member that contributes only to some members waits only for these. Members may
then be at different steps, by at most ``WINDOW`` apart. To members to which it sends nothing else,
a member reports its step every ``PROGRESS_EVERY`` steps. These reports also bound the memory,
because a member holds a contribution only until all others have begun a later step. A member that
has to give a newcomer the state may be past the newcomer's first step. It reports its step to all,
and the next member gives the state. If all are past, the newcomer fails.

Read ``seats``, ``steps``, ``messages`` and then ``machine``.
"""
