"""Servers and clients as processes on this machine, from start to end: the verb ``sphtp cluster``.

``course`` decides the order of starts, ``supervisor`` owns the processes (``process``) and reads
their lines of JSON, ``run_status`` stores their reports, ``display`` draws these, and ``outcome``
judges them.
"""
