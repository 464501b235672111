"""What the closest works claim of attention heads, measured on one pretrained model and one text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from poskernel.attention.closed_form import ClosedFormEstimator, LayerForms
from poskernel.attention.content.leakage import LeakageEstimator
from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.symbolic import HeadPermutation, PermutationEstimator
from poskernel.attention.interventions.bands import Band, plane_bands
from poskernel.attention.kinds import Profile
from poskernel.attention.measuring import Subject, measure
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.attention.sources.rotary_probe import rotary_probes
from poskernel.attention.sources.untrained import untrained_source
from poskernel.errors import InputError
from poskernel.experiments.experiment import ExperimentUnit, Quantity
from poskernel.experiments.kernel_measures import number
from poskernel.experiments.pretrained.models import RealModelCell, opened, text_windows
from poskernel.random_streams import random_stream
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement

STATES = ("trained", "untrained")
SHARP, SLOW, UNIFORM = "sharp_local", "slow_decay", "uniform"
FALLING = -0.5
"""Rank correlation of g with the offset from which a kernel that is neither sharp nor uniform counts as decaying."""
EVEN = 0.8
"""Share of the offsets from which the weight that g alone would give counts as uniform."""
HEAD_MEASURES = (
    Quantity("share", "variance of row-centred g over the within-row variance of single sequences' logits"),
    Quantity(
        "means_correlation", "correlation over offsets of g with the kernel that mean queries and keys alone make"
    ),
    Quantity(SHARP, "1 where half of the weight that g alone would give lies on offsets below 16, else 0"),
    Quantity(UNIFORM, "1 where that weight is spread over at least 0.8 of the offsets (exp of its entropy), else 0"),
    Quantity(SLOW, "1 where it is neither and g falls with the offset (rank correlation below -0.5), else 0"),
    Quantity("positional", "agreement of logits before and after the keys of a row changed places"),
    Quantity("symbolic", "agreement of logits with those that followed their keys"),
    *(
        Quantity(f"{score}_{band}", f"the same over {band} planes, by their energy")
        for score in ("positional", "symbolic")
        for band in (Band.SHORT, Band.UNRESOLVED)
    ),
    Quantity("octave", "largest share that one octave of offsets has of the steps of g from octave to octave, squared"),
)
LAYER_MEASURES = (Quantity("deposit", "effective number of heads that a layer's positional variance lies in"),)
LEAKAGE = tuple(
    Quantity(f"{part}_{first}", f"{words}, mean over heads; every text begins with {beginning}")
    for part, words in (("leakage", "share of the logits that is of absolute positions"),
                        ("first", "what of it the first position brings"))
    for first, beginning in (("kept", "the model's own first token"), ("swapped", "a random token of its own"))
)  # fmt: skip
NO_PLANES = "undefined: no plane of the band has energy in this head"


@dataclass(frozen=True)
class ClosestUnit(ExperimentUnit):
    """Every head of a rotary model; the first token's part on selected layers."""

    cell: RealModelCell
    texts: int = 5
    dropped: int = 16
    layers: tuple[int, ...] | None = None
    """Those measured; None is all."""
    leaking: tuple[int, int] = (6, 96)
    """Sequences and length on which absolute positions are measured: dense, in double precision."""

    @property
    def cost(self) -> float:
        """Core-minutes, about."""
        return 4.0

    @property
    def measured_layers(self) -> Sequence[int]:
        """Layers that are looked at."""
        return range(self.cell.model.layers) if self.layers is None else self.layers

    def part(self, layer: int, head: int) -> RealModelCell:
        """The cell of a head."""
        return self.cell.at(protocol="closest", state="trained", layer=layer, head=head)

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Of heads, of layers in both states, and of the model."""
        length, found = self.cell.length, list[tuple[Cell, str, int]]()
        for layer in self.measured_layers:
            for head in range(self.cell.model.heads):
                own = self.part(layer, head)
                found += [(own, each.name, length) for each in HEAD_MEASURES]
            for state in STATES:
                part = self.cell.at(protocol="closest", state=state, layer=layer)
                found += [(part, each.name, length) for each in LAYER_MEASURES]
        whole = self.cell.at(protocol="closest")
        return found + [(whole, each.name, self.leaking[1]) for each in LEAKAGE]

    def measure(self, weights: Path | None) -> list[Measurement]:
        """One pass for all heads, one of the untrained model, two short ones for the first token."""
        loaded, cell, number_of_text = opened(self.cell.model), self.cell, self.seed % self.texts
        tokens = text_windows(loaded, cell.source, number_of_text, self.texts, cell.sequences, cell.length)
        subject = Subject(loaded.source, tokens, self.measured_layers, self.dropped, self.seed, null=False)
        values = self.head_values(subject, loaded.source)
        drawn = Subject(untrained_source(loaded.source, self.seed), tokens, self.measured_layers, self.dropped,
                        null=False)  # fmt: skip
        values |= self.deposits("untrained", measure(drawn))
        short = text_windows(loaded, cell.source, number_of_text, self.texts, *self.leaking)
        return self.done(values | self.first_token(loaded.source, short))

    def head_values(self, subject: Subject, source: HuggingFaceSource) -> dict[tuple[Cell, str, int], float | str]:
        """Of every head, and the layers' deposits."""
        probes = {layer: each for layer, each in rotary_probes(source).items() if layer in subject.layers}
        permuted = PermutationEstimator(subject.heads, subject.length, self.dropped, probes, seed=self.seed)
        closed = ClosedFormEstimator(probes, subject.length, self.dropped)
        kernels = measure(subject, [permuted.consume, closed.consume])
        forms = {each.layer: each for each in closed.layers()}
        values: dict[tuple[Cell, str, int], float | str] = {}
        for kernel, scores in zip(kernels, permuted.estimates(), strict=True):
            found = {
                **kernel_claims(kernel, subject.length - self.dropped),
                "means_correlation": means_correlation(forms[kernel.layer], kernel.head),
                **score_claims(scores, subject.length),
            }
            part = self.part(kernel.layer, kernel.head)
            values |= {(part, name, subject.length): value for name, value in found.items()}
        return values | self.deposits("trained", kernels)

    def deposits(self, state: str, kernels: Sequence[HeadEstimate]) -> dict[tuple[Cell, str, int], float | str]:
        """Effective number of heads, a layer each."""
        values: dict[tuple[Cell, str, int], float | str] = {}
        for layer in self.measured_layers:
            signals = [kernel.signal.value for kernel in kernels if kernel.layer == layer]
            part = self.cell.at(protocol="closest", state=state, layer=layer)
            values[part, "deposit", self.cell.length] = number(
                effective_heads(signals), "undefined: no head has signal"
            )
        return values

    def first_token(
        self, source: HuggingFaceSource, tokens: Int[Tensor, "sequence position"]
    ) -> dict[tuple[Cell, str, int], float | str]:
        """Absolute positions with the model's own first token before all texts, and with random ones."""
        own = source.module.config.bos_token_id
        if own is None:
            raise InputError(f"{self.cell.model.name} has no first token of its own: there is nothing to swap.")
        stream = random_stream(self.seed, "closest/first")
        values: dict[tuple[Cell, str, int], float | str] = {}
        random = source.probe_tokens(len(tokens), 1, stream)
        for name, first in (("kept", torch.full_like(random, own)), ("swapped", random)):
            estimator = LeakageEstimator(self.cell.model.product_layers)
            source.forward(torch.cat([first, tokens[:, :-1]], 1), estimator.consume)
            found = estimator.estimates()
            whole = self.cell.at(protocol="closest")
            for part, shares in (("leakage", [e.total for e in found]), ("first", [e.first for e in found])):
                mean = sum(share.value for share in shares) / len(shares)
                values[whole, f"{part}_{name}", tokens.shape[1]] = number(mean, "undefined: a head without logits")
        return values


def kernel_claims(kernel: HeadEstimate, kept: int) -> dict[str, float | str]:
    """Share, one of three types, and the octave of the largest step."""
    profile = Profile.of(kernel.g, kept, kernel.first_offset)
    g = kernel.g[: profile.resolved]
    sharp = profile.near_weight >= 0.5
    uniform = not sharp and profile.effective_offsets >= EVEN * profile.resolved
    ranks = g.argsort().argsort().double()
    falling = float(torch.corrcoef(torch.stack([ranks, torch.arange(len(g)).double()]))[0, 1]) < FALLING
    return {
        "share": number(kernel.share.value, "undefined: the logits do not vary within rows"),
        SHARP: float(sharp),
        UNIFORM: float(uniform),
        SLOW: float(not sharp and not uniform and falling),
        "octave": number(octave_share(g), "undefined: g does not vary"),
    }


def octave_share(g: Float[Tensor, " offset"]) -> float:
    """Of the squared steps between means of g over offsets 1, 2 to 3, 4 to 7, ..., the largest one's share."""
    edges = [2**power for power in range(int(math.log2(len(g))) + 1)]
    means = torch.stack([g[low:high].mean() for low, high in pairwise(edges)])
    steps = means.diff().square()
    return float(steps.max() / steps.sum()) if float(steps.sum()) > 0 else math.nan


def means_correlation(forms: LayerForms, head: int) -> float | str:
    """Of the exact kernel with that of the means, over the measured offsets."""
    kernel = forms.kernel(head)
    both = torch.stack([kernel.profile(kernel.measured), kernel.means_alone().profile(kernel.measured)])
    return number(float(torch.corrcoef(both)[0, 1]), "undefined: one of the kernels does not vary")


def score_claims(scores: HeadPermutation, length: int) -> dict[str, float | str]:
    """Both scores, and those of the bands weighted by the energy of their planes."""
    values: dict[str, float | str] = {
        "positional": number(scores.positional.value, NO_PLANES),
        "symbolic": number(scores.symbolic.value, NO_PLANES),
    }
    turning = scores.frequencies > 0
    bands = plane_bands(scores.frequencies[turning], length)
    for name, planes in (("positional", scores.plane_positional), ("symbolic", scores.plane_symbolic)):
        for band in (Band.SHORT, Band.UNRESOLVED):
            chosen = [plane for plane in bands[band] if math.isfinite(planes[plane].value)]
            energy = sum(float(scores.energy[plane]) for plane in chosen)
            weighted = sum(float(scores.energy[plane]) * planes[plane].value for plane in chosen)
            values[f"{name}_{band}"] = weighted / energy if energy > 0 else NO_PLANES
    return values


def effective_heads(signals: Sequence[float]) -> float:
    """exp of the entropy of the heads' shares of positional variance; nan where none has any."""
    power = torch.tensor([value**2 if math.isfinite(value) else 0.0 for value in signals], dtype=torch.float64)
    return float(torch.special.entr(power / power.sum()).sum().exp()) if float(power.sum()) > 0 else math.nan
