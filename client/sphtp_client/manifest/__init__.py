"""A cluster for Kubernetes: the verb ``sphtp manifest``.

``kubernetes`` makes the objects, and ``command`` reads the options and prints them.
"""
