"""Recordings: the verbs ``sphtp record``, ``sphtp replay`` and ``sphtp convert``.

A recording is a file in MCAP, the format of recordings in robotics. ``values`` is the form that
messages have in it, ``mcap_file`` writes and reads it, ``recorder`` fills one from a cluster,
``schedule`` says when each message of it is due again, and ``player`` sends them.
"""
