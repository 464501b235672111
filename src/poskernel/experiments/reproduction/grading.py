"""How well alpha predicts, in one number and in words: rank statistics, precision, baselines, and what they hide."""

from typing import TYPE_CHECKING

from poskernel.experiments.comparison import PRECISION_TAUS
from poskernel.experiments.reproduction.agreement import Statistic, statistics_of, statistics_table, violations
from poskernel.experiments.reproduction.cells import TIER_WORDS, tiers_of
from poskernel.experiments.reproduction.evidence import Evidence
from poskernel.experiments.reproduction.output import Output

if TYPE_CHECKING:
    from poskernel.report.page import FigurePanel, Finding, Panel, Section

LEARNABLE_SPEARMAN = "Spearman, learnable cells (above 0.8)"


def statistics(evidence: Evidence, name: str, tier: int) -> dict[str, Statistic]:
    """Every statistic of one tier of a study, worked out once."""
    key = (name, tier)
    if key not in evidence.statistics:
        evidence.statistics[key] = statistics_of(evidence.comparison(name, tier), evidence.seed)
    return evidence.statistics[key]


def grading_sections(evidence: Evidence, output: Output, name: str = "paper") -> "list[Section]":
    """Statistics by tier, and the section on what they hide; none without models."""
    tiers = tiers_of(evidence, name)
    if not tiers:
        return []
    return [how_well(evidence, output, name, tiers), hidden(evidence, name, tiers[0])]


def how_well(evidence: Evidence, output: Output, name: str, tiers: list[int]) -> "Section":
    """The scatter, every statistic, and the rows that break the promise."""
    from poskernel.report.page import Section

    panels: list[Panel] = [scatter_by_tier(evidence, output, name, tiers)]
    findings: list[Finding] = []
    for tier in tiers:
        found = statistics(evidence, name, tier)
        if tier == tiers[0]:
            shown = ("Spearman, all cells", LEARNABLE_SPEARMAN, "precision at alpha of 0.5")
            findings = [finding_of(found[one]) for one in shown]
        caption = f"Every statistic, {TIER_WORDS[tier]}"
        panels.append(
            output.table(statistics_table(found), f"{name}-statistics-tier-{tier}", caption, {"p": ".2g"}, True)
        )
        broken = violations(evidence.comparison(name, tier).rows, PRECISION_TAUS[0])
        if len(broken):
            caption = f"Rows with alpha of at least {PRECISION_TAUS[0]:g} and LG below 0.7, {TIER_WORDS[tier]}"
            panels.append(output.table(broken, f"{name}-violations-tier-{tier}", caption, folded=tier > 1))
    question = "Does a higher alpha mean a higher accuracy, or is alpha a yes or no?"
    return Section("How well it predicts", question, findings, panels, command=f"poskernel study run {name}")


def finding_of(found: Statistic) -> "Finding":
    """A statistic as a finding of the page."""
    from poskernel.report.page import Finding

    how = "; ".join(filter(None, (found.estimate.method, found.method)))
    return Finding(f"{found.name}, n = {found.estimate.n}:", f"{found.estimate}", how)


def scatter_by_tier(evidence: Evidence, output: Output, name: str, tiers: list[int]) -> "FigurePanel":
    """A panel a tier, a point a cell."""
    import pandas as pd

    from poskernel.report.sweeps import scatter_panels

    cells = pd.concat([evidence.comparison(name, tier).cells.assign(tier=tier) for tier in tiers])
    ranks = {tier: statistics(evidence, name, tier)[LEARNABLE_SPEARMAN].estimate for tier in tiers}
    notes = {tier: f"{TIER_WORDS[tier]}\nSpearman, learnable:\n{ranks[tier]}" for tier in tiers}
    figure = scatter_panels(cells, title="Alpha against LG, means over lengths and seeds", panel="tier", notes=notes)
    caption = "One point a cell; encodings stand a little beside their true alpha. Dashed: measured = predicted."
    return output.figure(figure, cells, f"{name}-scatter", "Scatter of LG against alpha, a panel a tier", caption)


def hidden(evidence: Evidence, name: str, tier: int) -> "Section":
    """The same statistics with whole clusters drawn, and the baselines, in words computed from them."""
    from poskernel.report.page import Section

    found = statistics(evidence, name, tier)
    names = [one for one in found if "drawn" in one and not one.startswith("precision")]
    names += ["blind rule (bounded offset): Spearman, learnable cells", "hand taxonomy: Spearman, learnable cells"]
    findings = [cluster_finding(found[one]) for one in names]
    text = (
        "Thirty-five cells are five encodings times seven tasks, not thirty-five independent trials. Drawing whole "
        "encodings, or whole tasks, asks how the number would change with other encodings or tasks; shuffling labels "
        "within them asks whether alpha tells more than which encoding, or which task, generalizes at all. "
        "Seeds repeat one cell and add nothing to this.\n\n" + hidden_words(found)
    )
    question = (
        "How much of the agreement is left when cells that share an encoding or a task are not counted as independent?"
    )
    return Section(
        "What the rank statistics hide", question, findings, text=text, command=f"poskernel study report {name}"
    )


def cluster_finding(found: Statistic) -> "Finding":
    """A statistic with its permutation p where it has one."""
    from poskernel.report.page import Finding

    p = f"p = {found.p:.2g}; " if found.p == found.p else ""
    return Finding(
        f"{found.name}:", f"{found.estimate}", p + "; ".join(filter(None, (found.estimate.method, found.method)))
    )


def hidden_words(found: dict[str, Statistic]) -> str:
    """What clusters change, in words that follow the numbers."""
    words = []
    for scope, plain in (("all cells", "Spearman, all cells"), ("learnable cells", LEARNABLE_SPEARMAN)):
        for cluster in ("encodings", "tasks"):
            one = found[f"Spearman, {scope}, whole {cluster} drawn"].estimate
            if one.low != one.low:
                words.append(
                    f"With whole {cluster} drawn, the correlation over {scope} has no interval ({one.method})."
                )
                continue
            covers = "includes 0" if one.low <= 0 <= one.high else "excludes 0"
            before = found[plain].estimate
            words.append(
                f"With whole {cluster} drawn, the interval of the correlation over {scope} is {one.high - one.low:.2f} "
                f"wide instead of {before.high - before.low:.2f} and {covers}."
            )
    taxonomy, alpha = found["hand taxonomy: Spearman, learnable cells"].estimate, found[LEARNABLE_SPEARMAN].estimate
    if taxonomy.value == taxonomy.value and alpha.value == alpha.value:
        inside = "inside" if alpha.low <= taxonomy.value <= alpha.high else "outside"
        words.append(
            f"The hand taxonomy reaches {taxonomy.value:.2f} on the learnable cells, {inside} the interval of alpha's "
            f"{alpha}: a rank correlation cannot tell them apart where it lies inside."
        )
    return " ".join(words)
