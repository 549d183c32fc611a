"""What idle channels cost: memory, and the rate of a busy one on the same socket."""
