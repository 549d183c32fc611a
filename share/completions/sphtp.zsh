#compdef sphtp
# Read by zsh when somebody presses the tab key behind sphtp for the first time. The command prints a
# function, which zsh calls from the next time on. The last line calls it this time.
eval "$(sphtp completion zsh)"
_sphtp_completion "$@"
