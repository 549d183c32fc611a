"""Two peers: reliable-ordered messages inside unreliable packets (Fiedler).

Read in this order: ``header`` and ``frames`` say what travels; ``acks`` which packets arrived.
``outbox`` with ``lane`` and ``pieces`` holds what is sent, ``inbox`` with ``reorder`` and
``fragments`` what came; ``flow`` bounds both, ``ticket`` tells what became of it. ``recovery``
finds what is lost, ``governor`` says how much may leave; ``transport`` puts all this together.
``lifecycle`` is the table of states, ``connection`` its runner, ``endpoint`` finds the connection
that a datagram belongs to.
"""
