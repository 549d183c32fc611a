"""Two peers: reliable-ordered messages inside unreliable packets (Fiedler).

Read in this order. ``frames`` says what travels. ``sent_packets`` remembers every packet until it
is acked, ``received_packets`` says which ones arrived. ``send_queue`` with ``send_lane`` and
``queued_messages`` holds what is sent, ``receive_queue`` with ``reassembly`` what came;
``flow_control`` bounds both, ``receipts`` tells what became of it. ``loss_detection`` finds what is
lost, ``path`` says how much may leave. ``send_side`` and ``receive_side`` put all this together.

``lifecycle`` is the table of states, ``connection`` its runner. It owns the two sides, a handshake
and a packet protection: ``handshake`` in the clear, ``noise`` with ``initiator`` and ``responder``
sealed; ``protection`` has the keys, ``path_validation`` follows a peer that moves,
``stateless_reset`` tells one that it was forgotten, ``security`` says who is let in. ``endpoint``
routes datagrams by connection id, with ``connection_table``, ``accept_queue`` and
``simultaneous_open``.
"""
