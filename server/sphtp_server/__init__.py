"""The server daemon: settings, logs, and the verbs ``sphtp server`` and ``sphtp status``."""
