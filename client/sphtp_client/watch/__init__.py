"""The verb ``sphtp watch``: it shows a simulation without taking part in it.

``watcher`` subscribes to the frames that slabs publish, ``view`` remembers what came, ``events`` is
what is new of that, and ``display`` shows both.
"""
