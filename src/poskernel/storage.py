"""Where files live, and how they are written so that a kill leaves the old file or the new one, never half of one."""

import os
import tempfile
from pathlib import Path

from poskernel.errors import InputError, RunError


def cache_folder() -> Path:
    """POSKERNEL_CACHE, or the platform's cache folder for poskernel."""
    if chosen := os.environ.get("POSKERNEL_CACHE"):
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("poskernel"))


def require_writable(option: str, path: Path, folder: bool) -> None:
    """InputError, before any work, for a folder or a file that could not be written after it."""
    if folder and path.exists() and not path.is_dir():
        raise InputError(f"{option} is '{path}', a file: give a folder.")
    if not folder and path.is_dir():
        raise InputError(f"{option} is '{path}', a folder: give the path of an HTML file.")
    whole = path.absolute()
    nearest = next(each for each in ((whole, *whole.parents) if folder else whole.parents) if each.exists())
    try:
        tempfile.TemporaryFile(dir=nearest).close()  # permissions alone do not say it: read-only disks, root
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"{option} is '{path}', and nothing can be written in {nearest} ({reason}): choose another folder."
        ) from None


def write_whole(path: Path, content: bytes | str) -> Path:
    """Write to a neighbour, then rename over the path: a reader never sees half a file, a failure leaves the old one.

    Makes the folder where it is missing. Raises RunError where the system refuses (a full disk, no permission).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}; choose another folder.") from error
    neighbour = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes private files; a report is as readable as any file the user writes.
        neighbour.chmod(0o666 & ~current_umask())
        neighbour.replace(path)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"cannot write {path}: {reason}; free space or choose another folder.") from error
    finally:
        neighbour.unlink(missing_ok=True)
    return path


def current_umask() -> int:
    """The permissions that new files are denied; reading it means setting it for a moment."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
