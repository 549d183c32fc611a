"""Two peers: reliable-ordered messages inside unreliable packets (Fiedler).

Read in this order: ``header`` and ``frames`` say what travels; ``acks`` which packets arrived.
``outbox`` with ``lane`` and ``pieces`` holds what is sent, ``inbox`` with ``reorder`` and
``fragments`` what came; ``flow`` bounds both, ``ticket`` tells what became of it. ``recovery``
finds what is lost, ``governor`` says how much may leave; ``transport`` puts all this together.
``lifecycle`` is the table of states, ``connection`` its runner. It owns a handshake and a packet
protection: ``handshake`` in the clear, ``noise`` with ``initiator`` and ``responder`` sealed;
``protection`` has the keys, ``path_validation`` follows a peer that moves, ``stateless_reset``
tells one that it was forgotten, ``security`` says who is let in. ``endpoint`` routes datagrams by
connection id, with ``connection_table``, ``accept_queue`` and ``simultaneous_open``.
"""
