"""Where files live, and how they are written so that a kill leaves the old file or the new one, never half of one."""

import os
import tempfile
from pathlib import Path

from poskernel.errors import RunError


def cache_folder() -> Path:
    """POSKERNEL_CACHE, or the platform's cache folder for poskernel."""
    if chosen := os.environ.get("POSKERNEL_CACHE"):
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("poskernel"))


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one step (temporary file, then rename); RunError names the path where that fails."""
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            temporary = Path(stream.name)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException as error:  # an interrupt, too, leaves no temporary file behind
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another folder."
        ) from None
