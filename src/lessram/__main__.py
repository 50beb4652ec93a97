"""Where the program begins: `lessram`, and `python -m lessram`."""

import sys


def run() -> None:
    """Run the command line; it has words of its own for Ctrl-C, but not while it is being imported."""
    try:
        from lessram.cli import main

        main.run()
    except KeyboardInterrupt:
        sys.exit("lessram: interrupted")


if __name__ == "__main__":
    run()
