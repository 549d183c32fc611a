"""Recordings: the verbs ``sphtp record``, ``sphtp replay`` and ``sphtp convert``.

A recording is a file in MCAP, a format of recordings in robotics. ``values`` converts messages to
JSON and back, ``mcap_file`` writes and reads the file, ``recorder`` fills one from a cluster,
``schedule`` computes when each message is due again, and ``replay`` sends the messages. ``steps``
repeats the steps of a group in lock step, ``convert`` writes JSON lines and CSV, and ``events`` has
the lines that the verbs print.
"""
