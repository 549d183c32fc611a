# Read by fish when somebody presses the tab key behind sphtp for the first time.
sphtp completion fish | source
