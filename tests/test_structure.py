"""Habits that keep the house in order: tests mirror the source, files stay short, nothing leans on its surroundings."""

import ast
import re
import shlex
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "poskernel"
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LONGEST = 400
GENERATED = {"__pycache__", "_build", "jupyter_execute", ".ipynb_checkpoints"}


def written_files() -> list[Path]:
    """Everything in the repository that someone wrote as text."""
    folders = ("src", "tests", "docs", "benchmarks", "requirements", "results", ".ci")
    top = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".coverage")]
    below = [path for name in folders for path in (ROOT / name).rglob("*") if path.is_file()]
    kinds = {".py", ".md", ".toml", ".txt", ".sh", ".yaml", ".yml", ".cff", ".json", ".j2", ".html", ".css", ".js", ""}
    return [path for path in top + below if path.suffix in kinds and not GENERATED & set(path.parts)]


def code_blocks(page: Path) -> list[str]:
    """Indented and fenced blocks of a page."""
    text = page.read_text()
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return fenced + re.findall(
        r"(?:^(?: {4}.*)\n)+", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )


def commands() -> list[tuple[str, str]]:
    """Every `poskernel ...` line in a code block of a page, with the page."""
    found = []
    for page in PAGES:
        lines = [line.strip().removeprefix("$ ") for block in code_blocks(page) for line in block.splitlines()]
        found += [(page.relative_to(ROOT).as_posix(), line) for line in lines if line.startswith("poskernel ")]
    return found


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_has_its_test_file(module: Path) -> None:
    assert (ROOT / "tests" / module.parent / f"test_{module.name}").is_file()


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_no_module_is_too_long_to_read(module: Path) -> None:
    assert len((SOURCE / module).read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_no_module_is_named_for_nothing(module: Path) -> None:
    assert {"utils", "util", "common", "base", "misc", "helpers"}.isdisjoint(module.with_suffix("").parts)


def test_nothing_names_a_place_outside_the_repository() -> None:
    # Spelt in pieces, so that this file does not name them itself.
    outside = [
        "/".join(("..", "shared")),
        "/".join(("", "work", "")),
        "/".join(("", "opt", "")),
        "/".join(("", "root", "")),
    ]
    named = [
        f"{path.relative_to(ROOT)} names {place}"
        for path in written_files()
        for place in outside
        if place in path.read_text()
    ]
    assert not named


def test_written_files_are_found() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in written_files()}
    assert {"Makefile", "README.md", ".ci/run", "src/poskernel/kernel.py", "requirements/lock.txt"} <= found


def test_relative_links_and_pictures_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def test_the_map_of_the_folders_is_right() -> None:
    table = (ROOT / "README.md").read_text().partition("## Where things are")[2].partition("## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) > 5
    for row in rows:
        first, *others = re.findall(r"`([^`]+)`", row[: row.index("|", 1)])
        assert (ROOT / first).exists(), first
        assert all((SOURCE / other).exists() for other in others), row


def test_pages_show_commands() -> None:
    assert {line.split()[1] for _, line in commands()} >= {"predict", "screen", "study", "analyze", "report"}


@pytest.mark.parametrize(("page", "line"), commands(), ids=lambda value: value)
def test_the_command_line_takes_every_command_a_page_shows(page: str, line: str) -> None:
    from poskernel.cli import app

    tokens = shlex.split(line.partition(" #")[0])[1:]
    app.parse_args(tokens, print_error=False, exit_on_error=False)


def test_a_quoted_annotation_names_one_class_only() -> None:
    """The documentation's links resolve quoted names over the whole package, so two classes of one name collide."""
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    homes = defaultdict(set)
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(path)
    shared = {name: paths for name, paths in homes.items() if len(paths) > 1}
    colliding = []
    for path, tree in trees.items():
        parts = [vars(node).get(field) for node in ast.walk(tree) for field in ("annotation", "returns")]
        quoted = [word.value for part in parts if part is not None for word in ast.walk(part)
                  if isinstance(word, ast.Constant) and isinstance(word.value, str)]  # fmt: skip
        names = {name for text in quoted for name in re.findall(r"\w+", text)}
        colliding += [f"{path.name}: {name}" for name in names & shared.keys() if path not in shared[name]]
    assert not colliding
