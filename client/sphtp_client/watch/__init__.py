"""A simulation as whoever takes no part in it sees it: the verb ``sphtp watch``.

``watcher`` subscribes to the frames that slabs publish, ``view`` remembers what came, ``events`` is
what is new of that, and ``display`` shows both.
"""
