"""Workers in lock step: all to all, an array to each other one at every step."""
