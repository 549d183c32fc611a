"""How much may be under way, and how fast it may leave.

``controller`` is the door: the interface that every controller meets, and the factory that makes
one by name. ``signals`` says what a controller is told. ``newreno``, ``cubic``, ``tolerant`` and
``fixed`` are the controllers; ``loss_based``, ``recovery`` and ``hystart`` are what the first two
share. ``pacing`` spreads what a controller allows over time, ``delivery`` measures what arrives.
"""
