"""The verb ``sphtp watch``: show a simulation without taking part in it.

``watcher`` subscribes to the frames of the slabs, ``view`` stores their states, ``events`` defines
the reported changes, and ``display`` shows both.
"""
