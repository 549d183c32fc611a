#compdef sphtp
# Read by zsh when somebody presses the tab key behind sphtp for the first time. What the command
# prints is for the next time, so its function is called for this one.
eval "$(sphtp completion zsh)"
_sphtp_completion "$@"
