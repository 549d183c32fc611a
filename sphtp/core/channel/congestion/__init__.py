"""Congestion control: the bytes that may be in flight, and the rate at which packets leave.

``controller`` has the interface of all controllers, the fixed rate, and the factory that makes a
controller by name. ``delivery_rate`` has the inputs of controllers: acks, losses, and the rate at
which packets arrive. ``new_reno``, ``cubic`` and ``tolerant`` are the other controllers;
``hystart`` ends the first slow start of ``cubic``. ``sphtp.core.channel.path`` owns a controller
and a pacer (``sphtp.core.token_bucket``), and calls both.
"""
