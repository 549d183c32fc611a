"""One to many, with recovery by negative acknowledgements (Ultra Messaging).

Read in this order. ``wire`` and ``records`` are the formats, ``settings`` the timers and limits.

The source: ``transmission`` numbers and bundles messages, ``transmission_window`` keeps the
datagrams and announces itself in silence, ``flow_control`` and ``rate_limit`` hold them back,
``retransmission`` repairs what NAKs name, ``retention`` keeps messages for late join. ``source``
puts all this together.

The receiver: ``loss_map`` holds the missing datagrams, ``nak`` requests them and gives them up,
``receiver`` is the transport session. Above it, for each topic: ``unrecoverable_loss`` finds the
messages that are lost for good, ``ordered_delivery`` holds those that wait for their turn,
``delivery`` is the controller, ``late_join`` fetches from the history. ``subscription`` ties them
together.

``membership`` has the messages by which receivers join over a channel, ``sealing`` the keys.
Sources, receivers and controllers are machines: their owner hands in inputs and then polls outputs;
``poll_timeout`` is the time of the next timer. ``ranges``, ``events`` and ``statistics`` are shared
by both sides.
"""
