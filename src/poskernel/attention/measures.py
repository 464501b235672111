"""What can be measured of every head beyond its kernel, by name: one table, from which users choose.

A measure reads the captures of the pass that also gives the kernels (streamed), or runs passes of its own when that one
is over (probes, products, the untrained model), or needs the kernels alone and the model's frequencies (spectrum).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from poskernel.attention.content.head_products import head_products
from poskernel.attention.content.leakage import LeakageEstimator
from poskernel.attention.estimators.decompose import LEAST, SplitEstimator
from poskernel.attention.estimators.distance import DistanceEstimator, with_kernel_boundaries
from poskernel.attention.estimators.drift import DriftEstimator
from poskernel.attention.estimators.estimate import HeadEstimate
from poskernel.attention.estimators.head_probes import head_probes
from poskernel.attention.estimators.head_spectra import head_spectra
from poskernel.attention.estimators.pairs import MINIMUM_SEQUENCES
from poskernel.attention.estimators.symbolic import PermutationEstimator
from poskernel.attention.estimators.tokens import TokenEstimator
from poskernel.attention.estimators.variant_estimates import SAMPLES, VariantEstimator
from poskernel.attention.measuring import Subject, measure
from poskernel.attention.sources.capture import Consumer, LayerCapture
from poskernel.attention.sources.rotary_probe import rotary_probes
from poskernel.attention.sources.self_test import self_test
from poskernel.attention.sources.untrained import untrained_source
from poskernel.errors import InputError, lookup

EVERYTHING = "all"


@runtime_checkable
class HeadResult(Protocol):
    """What a measure gives for one head."""

    @property
    def layer(self) -> int:
        """Its layer."""

    @property
    def head(self) -> int:
        """Its number in the layer."""


Finish = Callable[[Sequence[HeadEstimate]], Iterable[HeadResult]]
"""Given the kernels of all heads, what a measure found of each."""


@dataclass(frozen=True, eq=False)
class Started:
    """A measure under way: what it reads of the shared pass (None: nothing), and how it ends."""

    finish: Finish
    consume: Consumer | None = None


@dataclass(frozen=True)
class Measure:
    """What is measured, what it costs, how many sequences it needs, and how it starts."""

    meaning: str
    cost: str
    """In words; beside the plain forward pass of the same text."""
    start: Callable[[Subject], Started]
    fewest: int = MINIMUM_SEQUENCES


@runtime_checkable
class Estimator(Protocol):
    """A streaming estimator."""

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer of one batch."""

    def estimates(self) -> Sequence[HeadResult]:
        """Every head's result."""


def streamed(make: Callable[[Subject], Estimator]) -> Callable[[Subject], Started]:
    """A measure whose estimator reads the shared pass."""

    def start(subject: Subject) -> Started:
        estimator = make(subject)
        return Started(lambda kernels: estimator.estimates(), estimator.consume)

    return start


def afterwards(
    finish: Callable[[Subject, Sequence[HeadEstimate]], Iterable[HeadResult]],
) -> Callable[[Subject], Started]:
    """A measure that is made when the shared pass is over."""
    return lambda subject: Started(lambda kernels: finish(subject, kernels))


def start_distance(subject: Subject) -> Started:
    """Attention by distance, with the boundary of the head's own kernel beside that of its weights."""
    estimator = DistanceEstimator(subject.heads, subject.length, subject.dropped)
    return Started(lambda kernels: with_kernel_boundaries(estimator.estimates(), kernels), estimator.consume)


def start_untrained(subject: Subject) -> Started:
    """The same architecture with weights drawn anew, refused before the pass if it cannot be built or captured."""
    other = untrained_source(subject.source, subject.seed)
    other.to(subject.place)
    self_test(other)

    def step(what: str, done: int, total: int) -> None:
        subject.step(f"untrained {what}", done, total)

    return Started(lambda kernels: measure(replace(subject, source=other, null=False, step=step)))


def spectra(subject: Subject, kernels: Sequence[HeadEstimate]) -> Iterable[HeadResult]:
    """Spectra of the kernels at the frequencies of their layers."""
    frequencies = {layer: probe.frequencies for layer, probe in rotary_probes(subject.source).items()}
    return head_spectra(kernels, frequencies, subject.length - subject.dropped, subject.seed)


MEASURES: dict[str, Measure] = {
    "split": Measure(
        "exact split of the logits into position, key, query and interaction: shares of variance and of KL(attention "
        "|| uniform); with it heads get all kinds",
        "about 4 passes",
        streamed(lambda subject: SplitEstimator(subject.heads, subject.length, subject.dropped)),
        LEAST,
    ),
    "distance": Measure(
        "attention mass by distance, with the first positions and without; how far from stationary the causal boundary "
        "keeps the weights",
        "about 1.5 passes",
        start_distance,
    ),
    "symbolic": Measure(
        "what happens to the logits when key vectors change places: positional and symbolic score, also per rotary "
        "frequency",
        "about 3 passes",
        streamed(
            lambda subject: PermutationEstimator(
                subject.heads, subject.length, subject.dropped, rotary_probes(subject.source), seed=subject.seed
            )
        ),
    ),
    "drift": Measure(
        "how much of the slope of g is a drift of mean queries and keys with position",
        "about 1.5 passes",
        streamed(lambda subject: DriftEstimator(subject.heads, subject.length, subject.dropped)),
    ),
    "leakage": Measure(
        "share of the logits that is a function of absolute positions, and what of it the first position brings",
        "several passes: dense logits in double precision",
        streamed(lambda subject: LeakageEstimator(subject.layers)),
    ),
    "variants": Measure(
        "R2 and signal of the Gram variants (mean, centred, global, whitened), and all of it with the first positions",
        "several passes: nine more Grams a head",
        streamed(lambda subject: VariantEstimator(subject.heads, subject.length, subject.dropped)),
        2 * SAMPLES,
    ),
    "tokens": Measure(
        "a few rows of the first sequence, spread evenly, with the keys that get most of their attention",
        "no pass of its own: five rows of one sequence",
        streamed(lambda subject: TokenEstimator(subject.heads, subject.length, subject.dropped)),
    ),
    "spectrum": Measure(
        "lines of g at the head's own rotary frequencies beside random ones, Fourier spectrum and its alignment",
        "no pass; random frequency sets for every group of layers",
        afterwards(spectra),
    ),
    "probes": Measure(
        "g on one token repeated beside g on text, its distance from an exact function of the offset, and attention on "
        "a repeated random pattern (induction, matching)",
        "two short passes",
        afterwards(
            lambda subject, kernels: head_probes(subject.source, subject.heads, subject.length, kernels, subject.seed)
        ),
    ),
    "untrained": Measure(
        "R2, signal and share of the same architecture with weights drawn anew, on the same text",
        "as much again as everything without measures",
        start_untrained,
    ),
    "products": Measure(
        "six ways to join position and content, fitted on half of the sequences and scored on the others, with four "
        "content kernels; rank of what they leave beside that of unrelated sequences",
        "the most: three passes with dense logits in double precision",
        afterwards(
            lambda subject, kernels: head_products(subject.source, subject.tokens, subject.layers, subject.dropped)
        ),
    ),
}
"""Measures by name."""


def chosen_measures(measures: str | Iterable[str]) -> list[str]:
    """Names in the order of the table, from names or one text with commas; `all` stands for every one.

    InputError for a name that is none, with the nearest one.
    """
    parts = measures.split(",") if isinstance(measures, str) else measures
    names = [part.strip() for part in parts if part.strip()]
    if EVERYTHING in names:
        return list(MEASURES)
    for name in names:
        lookup(MEASURES, name, "measure")
    return [name for name in MEASURES if name in names]


def check_sequences(measures: Iterable[str], sequences: int) -> None:
    """InputError for a measure that needs more sequences."""
    for name in measures:
        if sequences < MEASURES[name].fewest:
            raise InputError(
                f"{sequences} sequences are too few for the measure '{name}': take {MEASURES[name].fewest} or more."
            )


def measure_with(
    subject: Subject, names: Sequence[str]
) -> tuple[list[HeadEstimate], dict[tuple[int, int], dict[str, Any]]]:
    """Kernels of every head, and for each head what every measure found.

    Raises InputError that names the measure where one cannot be made.
    """
    started = {}
    for name in names:
        with named(name):
            started[name] = MEASURES[name].start(subject)
    consumers = [under(name, each.consume) for name, each in started.items() if each.consume is not None]
    kernels = measure(subject, consumers)
    found: dict[tuple[int, int], dict[str, Any]] = {(kernel.layer, kernel.head): {} for kernel in kernels}
    for name, each in started.items():
        subject.step(name, 0, 1)
        with named(name):
            for result in each.finish(kernels):
                found[result.layer, result.head][name] = result
        subject.step(name, 1, 1)
    return kernels, found


@contextmanager
def named(name: str) -> Iterator[None]:
    """An InputError inside says which measure it belongs to."""
    try:
        yield
    except InputError as error:
        raise InputError(f"the measure '{name}' cannot be made: {error}") from error


def under(name: str, consume: Consumer) -> Consumer:
    """The consumer, whose errors say which measure they belong to."""

    def wrapped(capture: LayerCapture) -> None:
        with named(name):
            consume(capture)

    return wrapped


def described(name: str) -> Mapping[str, str]:
    """One row of the table of measures, for documents."""
    entry = MEASURES[name]
    return {"measure": name, "what": entry.meaning, "cost": entry.cost, "fewest sequences": str(entry.fewest)}
