"""The registry on etcd: read ``etcd`` first, then ``leases``, ``copy`` and ``keyspace``."""
