"""The systems, each used in the way that its own documentation recommends.

The module of a system has ``receive`` and ``send`` where messages stream one way, ``echo`` and
``ping`` where they go to and fro, ``publish`` and ``subscribe`` where one sends to many, ``work``
where all send to all; each runs until its process is ended. The module for MPI is a program
instead, because the launcher of MPI starts its processes. Several modules share ``credit`` and
``framing``.
"""
