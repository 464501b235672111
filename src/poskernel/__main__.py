"""Where the command starts. Ctrl-C while the command line itself is being loaded ends as quietly as it does later."""

import sys


def main() -> int:
    """Load the command line and run it; its exit code."""
    try:
        from poskernel.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("poskernel: interrupted before anything had begun.\n")
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
