"""Streams: messages from one source to many receivers, which request lost datagrams by negative
acknowledgements, NAKs (Ultra Messaging).

Read in this order. ``wire`` and ``records`` are the formats of datagrams, ``settings`` the timers
and limits.

The source: ``transmission`` numbers and bundles messages. ``transmission_window`` keeps sent
datagrams for repairs, and schedules the session messages that announce them in silence.
``flow_control`` and ``rate_limit`` limit how far and how fast the source sends. ``retransmission``
repairs the datagrams that NAKs name, and ``retention`` keeps messages for late join. ``source``
combines these modules.

The receiver: ``loss_map`` holds the missing datagrams, ``nak`` requests them or gives them up,
``receiver`` is the transport session. Above it, for each topic: ``unrecoverable_loss`` finds the
messages that no datagram can bring any more, ``ordered_delivery`` keeps messages that wait for
earlier ones, ``delivery`` is the controller, and ``late_join`` fetches messages from the source's
history, with the frames of ``late_join_wire``. ``subscription`` combines these modules.

``membership`` has the messages by which receivers join over a channel, ``sealing`` the keys.
Sources, receivers and controllers are machines: their owner passes inputs and then polls outputs;
``poll_timeout`` returns the time of the next timer. ``ranges``, ``events`` and ``statistics``
serve both sides.
"""
