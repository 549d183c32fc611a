"""A channel between two peers: reliable-ordered messages inside unreliable packets.

The design is that of Glenn Fiedler's article "Reliable Ordered Messages", with the loss detection,
flow control and congestion control of QUIC. Docstrings name this source "Fiedler". Its important
and unimportant messages are those of "talk", a server in Erlang for games (see the page "The four
designs" of the documentation).

Read in this order. ``frames`` defines packets and frames. ``sent_packets`` records each packet
until it is acked, and ``received_packets`` records which packets arrived. ``send_queue`` holds the
messages to send, with ``send_lane`` and ``queued_messages``; ``receive_queue`` holds the received
ones, with ``reassembly``. ``flow_control`` bounds both, and ``receipts`` reports the outcome of
messages. ``loss_detection`` finds lost packets. ``path`` decides how much may leave, with
``congestion`` and ``path_mtu``. ``send_side`` and ``receive_side`` join all these.

``lifecycle`` is the table of states, and ``connection`` runs it. A connection owns the two sides, a
handshake and a packet protection. ``handshake`` is the handshake in the clear; ``noise``,
``initiator`` and ``responder`` are the sealed one. ``protection`` has the keys, and
``sphtp.core.secure.seal`` updates them. ``path_validation`` follows a peer that moves,
``stateless_reset`` answers packets for an unknown channel, and ``security`` decides which peers are
admitted. ``endpoint`` routes datagrams by connection id, with ``connection_table``,
``accept_queue`` and ``openings``.

``message_port`` is the application's side of a connection, with ``settings``, ``statistics`` and
``endings``, the reasons for the end of a channel. ``shared_memory`` has the layout of memory that
carries messages between processes of one machine. ``observer`` reports the events of a connection
to an ``instrument``.
"""
