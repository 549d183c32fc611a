"""The verb ``sphtp cluster``: servers and clients as processes, from start to end.

``course`` decides the order of starts. A ``launcher`` starts the processes: on this machine, in an
allocation of Slurm (``slurm``), or on workers of Dask (``dask_workers``). A process on another
machine begins with ``place``. ``supervisor`` owns the processes (``process``) and reads their lines
of JSON. ``run_status`` stores their reports, ``display`` draws them, and ``outcome`` judges them.
"""
