"""The documentation builds without a warning, names every module, and its code runs.

Two parts of a minute each are left out of the build here, and tried on less: the claims, which the tests of the theory
run one by one, and the paper's study, whose page the tests of the reproduction make with fewer resamples.
"""

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

import poskernel

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "poskernel"


def run(code: str) -> str:
    """Output of code in a fresh interpreter, so that what it registers stays there; warnings are errors."""
    environment = {**os.environ, "PYTHONPATH": str(Path(poskernel.__file__).parent.parent)}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def python_blocks(page: str) -> str:
    """All Python blocks of a page, in order: they build on each other."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    return "\n".join(blocks)


@pytest.fixture(scope="module")
def parts() -> ModuleType:
    """docs/parts.py, which lies in no package."""
    spec = spec_from_file_location("parts", ROOT / "docs" / "parts.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    environment = {**os.environ, "PYTHONPATH": str(Path(poskernel.__file__).parent.parent), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    command += ["-D", "parts_omitted=claims,study", str(ROOT / "docs"), str(folder / "html")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    return folder / "html"


def test_the_site_builds_without_a_warning(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if not (site / page).is_file()] == []


def test_the_atlas_of_every_committed_model_is_linked_and_there(site: Path) -> None:
    models = sorted(folder.name for folder in (ROOT / "results" / "atlas").iterdir())
    linked = re.findall(r'href="(atlas/[^"]+)"', (site / "attention.html").read_text())
    assert sorted(linked) == [f"atlas/{model}.html" for model in models] and models
    assert all('class="heads"' in (site / page).read_text() for page in linked)


def test_docstrings_reach_the_api_pages(site: Path) -> None:
    page = (site / "api" / "kernel.html").read_text()
    assert 'id="poskernel.kernel.PositionalKernel.transfer"' in page
    assert "simulation transfer operator" in page


def test_the_benchmarks_page_shows_the_rows_there_are(site: Path) -> None:
    page = (site / "benchmarks.html").read_text()
    tables = len(list((ROOT / "docs" / "benchmarks").glob("*.json")))
    assert page.count("<th>") > 0 if tables else "No rows yet." in page


def test_every_module_stands_on_a_page_of_the_api() -> None:
    text = "\n".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    listed = {name for line in re.findall(r"^% modules: (.+)$", text, re.MULTILINE) for name in line.split()}
    modules = {
        f"poskernel.{path.stem}"
        for path in SOURCE.iterdir()
        if (path / "__init__.py").exists() or (path.suffix == ".py" and path.stem != "__init__")
    }
    assert modules == listed


def test_every_claim_is_explained_where_its_row_leads(site: Path, parts: ModuleType) -> None:
    from poskernel.realizability.theorems import claims

    page = (site / "theory.html").read_text()
    groups = parts.claim_groups()
    assert sorted(name for group in groups.values() for name in group) == sorted(claims())
    assert re.findall(r"^% part: claims (\w+)$", (ROOT / "docs" / "theory.md").read_text(), re.MULTILINE) == [*groups]
    for name, function in claims().items():
        assert f'<section id="{name}">' in page, name
        assert f"{function.__module__}.{function.__name__}" in page, name  # the link to the function


def test_a_table_of_claims_is_run_when_it_is_shown(parts: ModuleType) -> None:
    from poskernel.realizability.theorems import run_checks

    names = ("rms-norm-sphere", "alibi-not-positive-definite")
    found = parts.with_parts(f"Claims\n\n% part: claims {' '.join(names)}\n", [])
    assert found.startswith("Claims\n\n````{raw} html\n<table>") and found.count("<td>yes</td>") == 2
    for check in run_checks(names):
        assert f'href="#{check.name}"' in found and f"<td>{check.size}</td>" in found


IN_SMALL_ELSEWHERE = ("theorem-1", "proposition-2-rate", "proposition-2-fitted", "proposition-2-hypothesis",
                      "proposition-2-existence", "proposition-3a", "open-case-search")  # fmt: skip
"""Claims that the tests of the theory run on smaller cases alone; all others run there as they do for the page."""


def test_claims_hold_as_the_page_runs_them(parts: ModuleType) -> None:
    table = parts.claims(" ".join(IN_SMALL_ELSEWHERE))
    assert table.count("<td>yes</td>") == len(IN_SMALL_ELSEWHERE) - 1 and table.count("<td>data</td>") == 1


def test_parts_that_are_left_out_say_so_and_all_others_are_there(site: Path, parts: ModuleType) -> None:
    asked = {
        page: re.findall(r"^% part: (\w+)", page.read_text(), re.MULTILINE) for page in (ROOT / "docs").rglob("*.md")
    }
    assert {name for names in asked.values() for name in names} == set(parts.PARTS)
    for page, names in asked.items():
        text = (site / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text()
        assert text.count(parts.OMITTED) == sum(name in ("claims", "study") for name in names), page
        assert "% part" not in text, page
    assert "parts_omitted" not in (ROOT / "Makefile").read_text()


def test_every_column_and_metric_of_committed_rows_is_explained() -> None:
    import pyarrow.parquet as parquet

    from poskernel.experiments.catalogue import EXPERIMENTS
    from poskernel.experiments.extension.results import METRICS
    from poskernel.experiments.trained_kernels import MEANINGS
    from poskernel.study.store import COLUMNS
    from poskernel.study.units import Metric

    page = (ROOT / "docs" / "running.md").read_text()
    assert [name for name in (*COLUMNS, *Metric) if f"\n| `{name}` | " not in page] == []
    assert "\ntier\n  A size" in (ROOT / "docs" / "glossary.md").read_text()
    explained = {
        *map(str, Metric),
        *MEANINGS,
        *METRICS,
        *(each.name for one in EXPERIMENTS.values() for each in one.measures),
    }
    for file in (ROOT / "results").glob("*/rows.parquet"):
        table = parquet.read_table(file, columns=["metric"])
        assert set(table["metric"].unique().to_pylist()) <= explained, file
        assert parquet.read_schema(file).names == list(COLUMNS), file


def test_an_unknown_part_fails(parts: ModuleType) -> None:
    with pytest.raises(KeyError, match="benchmark"):
        parts.with_parts("% part: benchmark\n", [])


def test_the_examples_of_the_contributors_page_work() -> None:
    use = """
from poskernel import predict

for encoding, task in (("clipped", "prev"), ("clipped:clip=1", "skip2"), ("clipped", "halfway")):
    print(predict(encoding, task, train_length=20, lengths=[60], existence=False).rows[0].alpha)
"""
    previous, unreachable, halfway = map(float, run(python_blocks("CONTRIBUTING.md") + use).split())
    assert previous == 1.0  # offset 1 has a logit of its own
    assert unreachable == 0.0  # offset 2 shares its logit with all farther ones: a tie
    assert halfway < 0.1  # the demanded offset grows past every one that was trained


def test_the_example_of_the_readme_prints_what_it_says() -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert run(python_blocks("README.md")) == shown
