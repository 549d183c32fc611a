"""The server daemon: settings, logs, the shared registry, and the verbs of the package.

The verbs are ``sphtp server``, ``status``, ``drain``, ``keygen`` and ``config``. The protocol of
servers is in ``sphtp.core.control``, and ``sphtp.shell.server`` runs it.
"""
