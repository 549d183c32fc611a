"""Measurements: channels and streams beside other systems for the same purpose.

``sphtp bench`` runs it from a checkout; no wheel carries it. ``catalog`` lists systems and cases,
``systems`` holds one module for each system, ``pair`` starts the two processes of a measurement,
``half`` is each of them, and ``rounds`` lets the systems take turns.
"""
