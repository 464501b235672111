"""Real models come as installed packages; tests of one are skipped where it is not installed."""

from importlib import metadata


def installed(name: str) -> bool:
    """Whether a package is there, found without importing it."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
