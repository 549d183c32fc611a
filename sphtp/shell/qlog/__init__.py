"""Logs of everything that instruments are told, in a file that other tools can read."""
