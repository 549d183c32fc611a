"""Two peers: reliable-ordered messages inside unreliable packets (Fiedler).

Read in this order: ``header`` and ``frames`` say what travels; ``acks`` which packets arrived;
``outbox``, ``inbox`` and ``fragments`` hold messages; ``rtt`` and ``loss`` measure; ``lifecycle``
is the table of states; ``connection`` ties them together, ``endpoint`` finds the connection that a
datagram belongs to.
"""
