"""The cost of idle channels: memory, and the rate of a busy one on the same socket."""
