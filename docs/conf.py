"""How the documentation is built: `make docs`."""

import pkgutil
import re
import sys
from importlib import import_module, metadata
from pathlib import Path

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

sys.path.insert(0, str(Path(__file__).parent))
from parts import with_parts, write_atlases

project = "poskernel"
author = "The poskernel developers"
copyright = f"2026 {author}"
release = version = metadata.version("poskernel")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
html_theme = "furo"
html_title = f"poskernel {release}"
html_static_path: list[str] = []
exclude_patterns = ["_build", "jupyter_execute", "**/.ipynb_checkpoints"]

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
# Cells run when the pages are built, so that no figure on them can be out of date.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

default_role = "code"
toc_object_entries = False  # a page's contents are its modules; every page's menu would copy thousands of names
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True, "ignore-module-all": True}

MODULES = re.compile(r"^% modules: ([\w. ]+)$", re.MULTILINE)


def modules_below(name: str) -> list[str]:
    """A module's name and those of the modules inside it."""
    inside = getattr(import_module(name), "__path__", None)
    return [name, *sorted(found.name for found in pkgutil.walk_packages(inside or [], f"{name}."))]


def write_modules(_app: Sphinx, _page: str, source: list[str]) -> None:
    """A line `% modules: poskernel.tasks` in a page becomes the docstrings of that module and of those inside it."""

    def sections(found: re.Match[str]) -> str:
        names = [name for top in found[1].split() for name in modules_below(top)]
        return "\n\n".join(f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n```" for name in names)

    source[0] = MODULES.sub(sections, source[0])


def write_parts(app: Sphinx, _page: str, source: list[str]) -> None:
    """A line `% part: ...` in a page becomes what `parts.py` computes for it."""
    source[0] = with_parts(source[0], app.config.parts_omitted)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Pages that are no part of the site's own, beside it."""
    if error is None:
        write_atlases(Path(app.outdir) / "atlas")


def escape_prose(_app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]) -> None:
    """Docstrings are prose with code between backticks: bars and stars outside of them are formulas, not markup."""
    for number, line in enumerate(lines):
        pieces = line.split("`")
        pieces[::2] = [re.sub(r"([|*])", r"\\\1", piece) for piece in pieces[::2]]
        lines[number] = "`".join(pieces)


class NamesOfOthers(SphinxPostTransform):
    """Names in signatures that no page has, such as Tensor, are text: Sphinx would look for each among all objects."""

    default_priority = 5
    """Before references are looked up."""

    def run(self, **_options: object) -> None:
        """One page."""
        ours = {name.rpartition(".")[2] for name in self.env.domains.python_domain.objects}
        for reference in list(self.document.findall(pending_xref)):
            target = reference["reftarget"].rpartition(".")[2]
            if reference.get("refdomain") == "py" and reference.get("reftype") != "mod" and target not in ours:
                reference.replace_self(reference.children)


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.add_post_transform(NamesOfOthers)
    app.connect("autodoc-process-docstring", escape_prose)
    app.connect("source-read", write_modules)
    app.connect("source-read", write_parts)
    app.connect("build-finished", finish)
    # Names of parts that a build need not compute: the suite tries those of a minute on smaller cases.
    app.add_config_value("parts_omitted", [], "env", list)
