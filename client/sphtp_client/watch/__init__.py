"""The verb ``sphtp watch``: it shows a simulation without taking part in it.

``watcher`` subscribes to the frames that slabs publish, ``view`` stores their state, ``events`` are
the changes of it, and ``display`` shows both.
"""
