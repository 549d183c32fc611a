"""What junk at its port does to a node: how long its messages take meanwhile, and how it grows."""
