"""One target under atheris, in a process of its own: `python -m tests.fuzz.guided TARGET ...`.

Further arguments are libFuzzer's. It ends with the process: with an error when the target raised,
hung or took too much memory, and the input that did it is written down.
"""

import sys

import atheris

# Branches of these are what the fuzzer looks for; whatever is imported must be imported in here.
with atheris.instrument_imports(include=["sphtp", "sphtp_client", "sphtp_server"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
