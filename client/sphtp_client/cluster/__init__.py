"""Servers and clients as processes on this machine, from start to end: the verb ``sphtp cluster``.

``launcher`` decides what starts after what, ``supervisor`` owns the processes (``process``) and
reads their lines of JSON, ``run_status`` remembers what they said, ``display`` draws that, and
``outcome`` judges it.
"""
