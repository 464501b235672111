"""Where figures and tables of a report go: every figure as png, svg and csv, every table as csv and LaTeX."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from poskernel.report.page import FigurePanel, Section, TablePanel


@dataclass(frozen=True)
class Output:
    """A folder that figures and tables are saved in as they are put on the page."""

    folder: Path

    def figure(self, figure: "Figure", data: "pd.DataFrame", name: str, alt: str, caption: str) -> "FigurePanel":
        """Save figures/NAME.png, .svg and .csv; the panel for the page."""
        from poskernel.report.figures import save_figure
        from poskernel.report.page import FigurePanel

        files = save_figure(figure, data, self.folder / "figures", name)
        return FigurePanel(files["svg"].read_text(), alt, caption)

    def table(
        self,
        table: "pd.DataFrame",
        name: str,
        caption: str,
        formats: Mapping[str, str] | None = None,
        folded: bool = False,
    ) -> "TablePanel":
        """Save tables/NAME.csv and tables/NAME.tex; the panel for the page."""
        from poskernel.report.page import TablePanel
        from poskernel.report.tables import write_csv, write_latex

        write_csv(table, self.folder / "tables" / f"{name}.csv")
        write_latex(
            table, self.folder / "tables" / f"{name}.tex", caption=caption, label=f"tab:{name}", formats=formats
        )
        return TablePanel(table, caption, formats or {}, folded)


def not_run(title: str, question: str, study: str, what: str = "models") -> "Section":
    """The section of a study that has no rows yet: it says what is not there and how to run it."""
    from poskernel.report.page import Finding, Section

    sentence = f"No {what} of study `{study}` are among the rows: this section is empty until they are."
    return Section(title, question, [Finding(sentence.replace("`", "'"))], command=f"poskernel study run {study}")
