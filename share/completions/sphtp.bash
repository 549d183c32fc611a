# Read by bash-completion when somebody presses the tab key behind sphtp for the first time.
eval "$(sphtp completion bash)"
