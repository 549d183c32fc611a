"""A channel between two peers: reliable-ordered messages inside unreliable packets (Fiedler).

Read in this order. ``frames`` defines packets and frames. ``sent_packets`` records each packet
until it is acked, and ``received_packets`` records which packets arrived. ``send_queue`` holds the
messages to send, with ``send_lane`` and ``queued_messages``; ``receive_queue`` holds the received
ones, with ``reassembly``. ``flow_control`` bounds both, and ``receipts`` reports the outcome of
messages. ``loss_detection`` finds lost packets. ``path`` decides how much may leave, with
``congestion`` and ``path_mtu``. ``send_side`` and ``receive_side`` join all these.

``lifecycle`` is the table of states, and ``connection`` runs it. A connection owns the two sides, a
handshake and a packet protection. ``handshake`` is the handshake in the clear; ``noise``,
``initiator`` and ``responder`` are the sealed one. ``protection`` has the keys. ``path_validation``
follows a peer whose address changes. ``stateless_reset`` ends a peer's channel that is unknown
here, and ``security`` decides which peers are admitted. ``endpoint`` routes datagrams by connection
id, with ``connection_table``, ``accept_queue`` and ``openings``.

``message_port`` is the application's side of a connection, with ``settings``, ``statistics`` and
``endings``, the reasons of an end. ``observer`` reports events to an ``instrument``.
``shared_memory`` has the format by which large messages bypass the channel's packets on one
machine.
"""
