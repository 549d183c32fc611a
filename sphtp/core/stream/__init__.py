"""One to many, with recovery by negative acknowledgements (Ultra Messaging).

Read in this order. ``wire`` and ``records`` say what travels, ``settings`` what may be chosen.

The source: ``transmission`` numbers and bundles messages, ``transmission_window`` keeps the
datagrams, ``flow_control`` and ``rate_limit`` hold them back, ``retransmission`` repairs what NAKs
name, ``session_messages`` tell the window in silence, ``retention`` keeps messages for late join.
``source`` puts all this together.

The receiver: ``loss_map`` holds what is missing, ``nak`` asks for it and gives it up, ``receiver``
is the transport session. Above it, for each topic: ``unrecoverable_loss`` finds which messages are
lost for good, ``ordered_delivery`` holds those that wait for their turn, ``delivery`` is the
controller, ``late_join`` fetches from the history. ``subscription`` ties them together.

``membership`` is how receivers join over a channel, ``sealing`` the keys. Sources, receivers and
controllers are machines: inputs in, then outputs are polled; what is due when, ``poll_timeout``
tells. ``ranges``, ``events`` and ``statistics`` are shared by both sides.
"""
