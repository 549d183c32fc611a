"""What measures and compares: channels and streams beside the systems somebody might have picked.

``sphtp bench`` runs it from a checkout; no wheel carries it. ``catalog`` lists systems and cases,
``systems`` holds one module for each system, ``pair`` starts the two processes of a measurement,
``half`` is each of them, and ``rounds`` lets the systems take turns.
"""
