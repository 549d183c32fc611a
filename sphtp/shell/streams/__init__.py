"""Streams on a node: who hosts a source, who attends one, and how both meet the socket."""
