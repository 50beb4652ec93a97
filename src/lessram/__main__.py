"""`python -m lessram`, the same as `lessram`."""

from lessram.cli.main import run

if __name__ == "__main__":
    run()
