"""Measurements: channels and streams beside other systems for the same purpose.

``sphtp bench`` runs them from a checkout; no wheel has them. ``catalog`` lists systems and cases,
``systems`` has one module for each system, ``pair`` starts the processes of a comparison, ``half``
is the program of each of these processes, and ``rounds`` lets the systems take turns.
"""
