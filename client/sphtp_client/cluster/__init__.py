"""Servers and clients as processes, from start to end: the verb ``sphtp cluster``.

``course`` decides the order of starts, and a ``launcher`` starts: on this machine, in an allocation
(``slurm``), on workers (``dask_workers``). ``place`` is what a process on another machine begins
with. ``supervisor`` owns the processes (``process``) and reads their lines of JSON, ``run_status``
stores their reports, ``display`` draws these, and ``outcome`` judges them.
"""
