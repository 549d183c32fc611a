"""The registry on etcd: its keys, values and requests, see ``keyspace``."""
