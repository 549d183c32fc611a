"""Groups in lock step: the members of each step, agreed.

Theory of operation. At each step every member sends a contribution to every other one, and the step
is complete when it has theirs. So nobody is more than a step ahead, and as long as the members stay
the same nothing else is sent: a step of n members is n - 1 messages out and n - 1 in, at each.

What has to be agreed is who takes part in a step. A member that dies has sent its last contribution
to some and not to others, and those who notice do so at different times, or not at all. The answer
is that of virtual synchrony (Birman and Joseph 1987): before the members change, those who stay
flush what they have of those who go.

**Seats.** A member takes part in the steps from ``start`` on and before ``end``. These two numbers
are the whole of the agreement: whoever has the same seats has the same members in each step.

**The coordinator** is the first member, in the order of joining, to which a member's channel has
not been lost. A lost channel stays lost, so each member's coordinator only ever moves on, towards
the later ones. Members that do not coordinate report lost channels to the one who does.

**A change** takes one round trip. The coordinator sends FLUSH to all that stay. From then on these
begin no step and take nothing from those removed, and they answer with STATE: the last step that
they began, and the contributions that they hold of those removed. Then the coordinator knows that

- the contributions of a dead member up to the last one that anybody has are part of their steps,
  and those who lack one get it with INSTALL. It ends behind that one;
- a newcomer starts at the first step that nobody has reached. Somebody may have completed the last
  step that has begun, and its program computes for the members of the next one already;

and INSTALL says so to all. It is the same at every member, for it was decided in one place, from
what can no longer change. A coordinator that dies between leaves a flush without an end, or an
INSTALL that some have and others do not. Its successor flushes again, and the seats in the answers
say what had been decided: an end or a start that anybody has installed stays as it is.

**Each member follows one coordinator.** It answers the FLUSH of the first member to which its own
channel lives, and keeps those of others for later. If two members lose each other while a third one
has both, the coordinator hears the complaint and removes the one complained of; two that complain
of each other are decided by whose word comes first. If it is the coordinator that is complained of,
nothing happens: it has lost that channel itself, and removes the other one.

**A part that is cut off** must not go on by itself, or there are two simulations. A change needs
more than half of the members before it, or half of them with the first; or else that the servers
report all those missing as gone, for two members of which one was killed are no majority either. A
member that cannot change what it has to is excluded after ``AGREEMENT_TIMEOUT``; so every wait
ends. One
that was frozen and comes back finds that its channels are gone, is told so by whoever it asks, and
has to join again, as a new member.

**Leaving** is no change: LEAVE says at which step a seat ends, and reaches everybody behind the
last contribution. Whoever leaves stays until all others have completed its last step, for until
then it may be the only one that holds the contribution of another one that died.

**Entering.** A newcomer opens channels to all, says to whom it has them, and is in when INSTALL has
reached all others too (each sends ADMITTED): otherwise it could take part in a step of which nobody
else knows. At the step at which it starts, the first older member that has the state of the
simulation gives it. The others would do, too, for nobody can complete that step without the
newcomer; so if that one dies, the next one gives it.

**Founding** is the same change, by the lowest id of those present, from no members to as many as
are wanted. Somebody who is present promises to follow one founder at a time.

**What happens when a member dies** is agreed like the rest. With ``continue`` the steps go on
without it. With ``raise`` the step at its end fails, at every member. With ``wait`` that step waits
for a newcomer of the same name, which gets its place and starts at its end; the others then send
their contributions to that step once more.

**Neighbours.** A member that contributes to some only waits for these only. The steps of others may
then differ, by at most ``WINDOW``. A member tells those that it sends nothing else how far it is,
every ``PROGRESS_EVERY`` steps. That bounds what is held, too: a contribution is held until
everybody has begun a later step.

Read ``seats``, ``steps``, ``messages`` and then ``machine``.
"""
