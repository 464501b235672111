"""theory and characterize: claims as checks that can fail, and the theorems on one's own case."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from poskernel import console
from poskernel.errors import RunError
from poskernel.session import PLAIN_DEFAULTS, PlainSession
from poskernel.storage import require_writable

if TYPE_CHECKING:
    from poskernel.realizability.theorems import Check

SETTLED = 10
"""Claims after which a time left is said: the first seven take most of it."""


def theory(
    *claim: str,
    only: Annotated[tuple[str, ...] | None, Parameter(negative="")] = None,
    list_claims: Annotated[bool, Parameter(name=["--list-claims", "--list"], negative="")] = False,
    long: bool = False,
    samples: int | None = None,
    report: Path | None = None,
    session: PlainSession = PLAIN_DEFAULTS,
) -> None:
    """Run every claim of the sources as a check that can fail; exit code 1 if one that should hold does not.


    Parameters
    ----------
    claim
        Names of some claims, or what they begin with: theorem-2 stands for all seven theorem-2-... claims. Commas or
        spaces separate them.
    only
        The same; may be given again.
    list_claims
        List the claims, or those named, and what each function is about, and run none.
    long
        The sources' own sample sizes, in minutes.
    samples
        Number of draws of every claim that draws at random, 20 to 1,000,000. Without it each has its own, 10 to
        30,000, with --long 40 to 400,000; its row says how many. Few draws leave some claims unclear, which is exit
        code 0 too.
    report
        HTML file to write the table and the pictures to.
    """
    from poskernel.realizability.theorems import Effort, chosen_claims, claim_rows, run_checks, theory_document
    from poskernel.realizability.theorems.table import counts_in_words

    names = [*claim, *(only or ())]
    chosen = chosen_claims(names)
    if list_claims:
        console.print_rows(claim_rows(names), "poskernel.claims/1", session.json)
        return
    if report is not None:
        require_writable("--report", report, folder=False)
    effort = Effort.LONG if long else Effort.DEFAULT
    if session.out is not None or report is not None:
        import poskernel.report.figures  # noqa: F401  # a missing extra is said before the work
    progress = console.Progress(len(chosen), "theory", quiet=session.quiet, settle=SETTLED)
    checks = run_checks(names, effort, session.seed, samples, progress=lambda check: progress.step(check.name))
    document = theory_document(checks, effort, session.seed, samples)
    if session.json:
        console.print_json(document)
    else:
        for each in (*console.theory_tables(document), counts_in_words(document["counts"])):
            console.output().print(each)
    if session.out is not None:
        save_checks(session.out, checks, document["checks"], session.quiet)
    if report is not None:
        write_report(checks, report, again(names, long, samples, session.seed, report), session.quiet)
    failed = [check.name for check in checks if check.holds is False]
    if failed:
        do = "does" if len(failed) == 1 else "do"
        many = document["counts"]["claims"]
        raise RunError(f"{len(failed)} of {many} claims {do} not hold: {', '.join(failed)}; see their notes.")


def again(names: Sequence[str], long: bool, samples: int | None, seed: int, report: Path | None = None) -> str:
    """The command line that makes the same rows, and the same page."""
    parts = ["poskernel theory", f"--only {','.join(names)}" if names else "", "--long" if long else ""]
    parts += [f"--samples {samples}" if samples is not None else "", f"--seed {seed}"]
    parts += [f"--report {shlex.quote(str(report))}" if report is not None else ""]
    return " ".join(filter(None, parts))


def characterize(
    encoding: str,
    task: str,
    /,
    *,
    train_length: int = 20,
    horizon: int = 100_000,
    rule: str = "adam",
    existence_seconds: float = 60.0,
    session: PlainSession = PLAIN_DEFAULTS,
) -> None:
    """Does some kernel of an encoding carry a task to any length: transfers, cannot or undecided, and why.

    Parameters
    ----------
    encoding
        nope, learned, sinusoidal, rope, alibi, linear, ntk, dynamic, yarn, longrope, llama3, partial, p-rope, xpos, t5,
        shaw, kerple-log, kerple-power, fire, randomized, learned-iid, cope, with parameters where wanted:
        `rope:base=1e6,frequencies=32`; or inline JSON in the form of a Hugging Face config.
    task
        prev, skip2, skip3, skip5, copy, reverse, first, pos2, pos5, induction, `skip:offset=7`, `pos:position=4`.
    train_length
        Length that the kernel has to solve.
    horizon
        How long a sequence is looked at where no formula settles all lengths: 10 training lengths to 1,000,000. A
        verdict that rests on it is called counted, not proved; a longer one takes longer and counts further.
    rule
        Selection rule whose alpha stands beside the answer: adam, optimum, adam0, max-margin, min-norm.
    existence_seconds
        Time limit of all linear programmes of the answer together.
    """
    from poskernel.realizability.theorems import characterize as run

    document = run(encoding, task, train_length, horizon, rule, existence_seconds).document()
    if session.json:
        console.print_json(document)
    else:
        console.output().print(console.characterization_table(document))
    if session.out is not None:
        import json

        from poskernel.storage import write_whole

        write_whole(session.out / "characterize.json", json.dumps(document, indent=2) + "\n")


def save_checks(folder: Path, checks: "Sequence[Check]", rows: list[dict[str, object]], quiet: bool) -> None:
    """The rows as csv in a folder, and the pictures of their claims in its folder figures."""
    import pandas as pd

    from poskernel.experiments.theory_page import pictures_of, save_pictures
    from poskernel.storage import write_whole

    write_whole(folder / "theory.csv", pd.DataFrame(rows).to_csv(index=False))
    progress = console.Progress(len(pictures_of(checks)), "pictures", quiet)
    save_pictures(checks, folder, lambda picture: progress.step(picture.name))
    console.say(f"the rows are {folder / 'theory.csv'}", quiet)


def write_report(checks: "Sequence[Check]", path: Path, command: str, quiet: bool) -> None:
    """The page, with a line while its pictures are drawn and one that says where it is."""
    from poskernel.experiments.theory_page import pictures_of, write_theory

    progress = console.Progress(len(pictures_of(checks)), "pictures of the page", quiet)
    write_theory(checks, path, command, lambda picture: progress.step(picture.name))
    console.say(f"the page is {path}", quiet)
