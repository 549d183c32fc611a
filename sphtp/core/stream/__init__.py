"""One to many: the room of source, receiver, transmission window, loss map and delivery.

Not furnished yet. What moves in here may use ``sphtp.core.secure`` and the core's leaves, and
knows neither channels nor the control plane.
"""
