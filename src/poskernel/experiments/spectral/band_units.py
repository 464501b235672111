"""Units of the spectral interventions: what each change does to attention distance, to loss and to accuracy."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from jaxtyping import Int
from torch import Tensor

from poskernel.attention.interventions.bands import Band
from poskernel.attention.interventions.changes import MeanFilter
from poskernel.attention.interventions.controls import consume_layers, position_means
from poskernel.attention.interventions.distance_changes import (
    DistanceChange,
    FilterDistances,
    LogDistances,
    MeasuredDistances,
    PlaneDistances,
)
from poskernel.attention.interventions.intervene import intervening
from poskernel.experiments.experiment import Quantity
from poskernel.experiments.kernel_measures import held_out_tokens
from poskernel.experiments.kernel_units import STATES
from poskernel.experiments.language_grid import FULL, Grid
from poskernel.experiments.language_units import LanguageUnit, Part
from poskernel.experiments.spectral.band_changes import (
    CONTROLLED,
    DAMPED,
    GAINS,
    NO_CONTROL,
    NONE,
    BandChanges,
    Change,
    Columns,
    at_matched,
    gained,
    random_for,
    short_wavelength,
)
from poskernel.experiments.spectral.word_filters import class_parts, class_values
from poskernel.models.language import HeldOut, Text, held_out
from poskernel.models.language_training import TrainedLanguage
from poskernel.models.text import Split, tokenized
from poskernel.models.training import initial_model
from poskernel.models.transformer import Transformer
from poskernel.models.word_classes import word_classes
from poskernel.random_streams import random_stream
from poskernel.study.grid import Cell

STRETCHES = (1, 2, 4)
"""Lengths that a model is evaluated at, in training lengths."""
ALL, ONE = "all layers", "one layer"
DISTANCES = (
    Quantity("distance_change", "change of a head's mean ln(1 + offset), weighted by its attention, nats"),
    Quantity("predicted_change", "the same with the change of its kernel alone put into its logits, one layer changed"),
    Quantity("kernel_change", "the same between its kernel and its changed kernel, without any content"),
    Quantity("over_random", "distance_change less its mean over 5 sets of other planes of equal energy, one layer"),
)
LOSS = Quantity("loss", "cross-entropy on test documents under a change, nats a token")
ACCURACY = Quantity("accuracy", "share of scored tokens of a generated task that are predicted under a change")
UNMATCHED = "undefined: no set of the head's other planes has the energy of the band"
EMPTY = "undefined: no plane of the head lies in the band"
Values = dict[tuple[Cell, str, int], float | str]
MEANS_FROM = 4
"""Windows that means are measured on, for each that losses are: what is left of content in a mean is filtered too."""
FILTERED: Mapping[str, tuple[Band, ...]] = {
    "without short": (Band.MIDDLE, Band.UNRESOLVED),
    "without middle": (Band.SHORT, Band.UNRESOLVED),
}
"""Bands that a filter of the means keeps."""


def heads_of(cell: Any) -> list[tuple[int, int]]:
    """(layer, head) of every head of a small model's cell."""
    shape = cell.condition.architecture
    return [(layer, head) for layer in range(shape.layers) for head in range(shape.heads)]


def plane_changes(gains: Sequence[float]) -> list[str]:
    """Every band at every gain."""
    return [gained(band, gain) for band in Band for gain in gains]


def scored_changes(gains: Sequence[float], stretch: int = 1) -> list[str]:
    """Everything that is scored in all layers at once; the controls of bands at the training length alone."""
    names = [NONE, *plane_changes(gains), *(gained("all", gain) for gain in gains)]
    if stretch == 1:
        names += [name for band in CONTROLLED for name in (at_matched(band), random_for(band))]
    return names


def distance_parts(
    heads: Sequence[tuple[int, int]], gains: Sequence[float]
) -> list[tuple[dict[str, str | int | float], str]]:
    """What of every head is asked about distance: where (as columns) and which metric."""
    found: list[tuple[dict[str, str | int | float], str]] = []
    for layer, head in heads:
        for name in plane_changes(gains):
            one: Columns = {"scope": ONE, "change": name, "layer": layer, "head": head}
            found += [(one, each.name) for each in DISTANCES[:3]]
        for band in CONTROLLED:
            found.append(({"scope": ONE, "change": gained(band, DAMPED), "layer": layer, "head": head}, "over_random"))
        for band in Band:
            found.append(
                ({"scope": ALL, "change": gained(band, DAMPED), "layer": layer, "head": head}, "distance_change")
            )
    return found


def head_distances(
    model: Any,
    changes: BandChanges,
    tokens: Int[Tensor, "sequence position"],
    dropped: int,
    gains: Sequence[float] = GAINS,
) -> dict[tuple[Part, str], float | str]:
    """Everything that `distance_parts` asks of a model: one layer at a time from one pass, then all layers at once."""
    draws = {f"{band}/{draw}": planes for band in CONTROLLED for draw, planes in enumerate(changes.random[band])}
    one = PlaneDistances(changes.rotary, {str(band): planes for band, planes in changes.bands.items()}, gains, dropped)
    random = MeasuredDistances(changes.rotary, draws, DAMPED, dropped)
    plain = LogDistances(dropped)

    def consume(capture: Any) -> None:
        for each in (one, random, plain):
            each.consume(capture)

    consume_layers(model, tokens, consume, len(tokens))
    values: dict[tuple[Part, str], float | str] = {}
    before, after = plain.means(), {}
    for band in Band:
        together = LogDistances(dropped)
        with intervening(model, *changes.changes()[gained(band, DAMPED)][0]):
            consume_layers(model, tokens, together.consume, len(tokens))
        after[band] = together.means()
    for where, metric in distance_parts(sorted(before), gains):
        name = (int(where["layer"]), int(where["head"]))
        band, gain = of_name(str(where["change"]))
        if not changes.bands[band][name]:
            values[tuple(where.items()), metric] = EMPTY
        elif where["scope"] == ALL:
            values[tuple(where.items()), metric] = after[band][name] - before[name]
        elif metric == "over_random":
            values[tuple(where.items()), metric] = over_random(one.found, random.found, band, name)
        else:
            values[tuple(where.items()), metric] = field_of(one.found[band, gain, *name], metric)
    return values


def of_name(change: str) -> tuple[Band, float]:
    """Band and gain of a change's name."""
    band, gain = change.split(" x ")
    return Band(band), float(gain)


def field_of(change: DistanceChange, metric: str) -> float:
    """The number of a metric."""
    return {
        "distance_change": change.measured,
        "predicted_change": change.predicted,
        "kernel_change": change.alone,
    }[metric]


def over_random(
    found: Mapping[tuple[str, float, int, int], DistanceChange],
    random: Mapping[tuple[str, int, int], float],
    band: Band,
    head: tuple[int, int],
) -> float | str:
    """A band's change of one head less the mean over its controls."""
    drawn = [each for name, each in random.items() if name[0].startswith(f"{band}/") and name[1:] == head]
    return found[band, DAMPED, *head].measured - sum(drawn) / len(drawn) if drawn else UNMATCHED


def scores(
    model: Any, changes: Mapping[str, Sequence[Change]], names: Sequence[str], score: Callable[[], float]
) -> dict[str, float | str]:
    """A model's score under every change of those names, the mean over draws where it is random."""
    found: dict[str, float | str] = {}
    for name in names:
        draws = [()] if name == NONE else changes.get(name, [])
        values = []
        for interventions in draws:
            with intervening(model, *interventions):
                values.append(score())
        found[name] = sum(values) / len(values) if values else NO_CONTROL
    return found


@dataclass(frozen=True)
class SpectralUnit(LanguageUnit):
    """One small rotary model: a language model, or one of a generated task, which is asked about accuracy alone."""

    grid: Grid = FULL

    @property
    def aspect(self) -> str:
        """Bands."""
        return "bands of planes"

    @property
    def scored(self) -> str:
        """What is scored."""
        return LOSS.name if isinstance(self.cell.condition.recipe.source, Text) else ACCURACY.name

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Scores at every length; of language models the loss layer by layer and every head's distance too."""
        length = self.cell.train_length
        found: list[tuple[Cell, str, int]] = [
            (self.cell.at(scope=ALL, change=name), self.scored, stretch * length)
            for stretch in STRETCHES
            for name in scored_changes(GAINS, stretch)
        ]
        if self.scored == ACCURACY.name:
            return found
        for layer in range(self.cell.condition.architecture.layers):
            found += [
                (self.cell.at(scope=ONE, change=gained(band, DAMPED), layer=layer), LOSS.name, length) for band in Band
            ]
        found += [(self.cell.at(**where), metric, length) for where, metric in class_parts()]
        parts = distance_parts(heads_of(self.cell), GAINS)
        return found + [
            (self.cell.at(state=state, **where), metric, length) for state in STATES for where, metric in parts
        ]

    def measured(self, trained: TrainedLanguage) -> Values:
        """Every score and distance."""
        changes = self.changes(trained.model)
        everything = {**changes.changes(), **changes.controls()}
        length, values = self.cell.train_length, dict[tuple[Cell, str, int], float | str]()
        for stretch in STRETCHES:
            names, score = scored_changes(GAINS, stretch), partial(self.score, trained.model, stretch)
            found = scores(trained.model, everything, names, score)
            values |= {
                (self.cell.at(scope=ALL, change=name), self.scored, stretch * length): each
                for name, each in found.items()
            }
        if self.scored == ACCURACY.name:
            return values
        for layer in range(trained.model.architecture.layers):
            inside = changes.changes([layer])
            for name in (gained(band, DAMPED) for band in Band):
                with intervening(trained.model, *inside[name][0]):
                    loss = self.score(trained.model)
                values[self.cell.at(scope=ONE, change=name, layer=layer), LOSS.name, length] = loss
        return values | self.distances(trained.model, changes) | self.words(trained.model, changes)

    def words(self, model: Transformer, changes: BandChanges) -> Values:
        """Classes of words apart, on test windows."""
        source, length = self.cell.condition.recipe.source, self.cell.train_length
        assert isinstance(source, Text)
        classes = word_classes(tokenized(source.corpus, source.tokens).pieces)
        found = class_values(model, self.tokens(self.grid.sequences), classes, changes, self.grid.dropped)
        return {(self.cell.at(**dict(where)), metric, length): value for (where, metric), value in found.items()}

    def distances(self, model: Transformer, changes: BandChanges) -> Values:
        """Of both states; the untrained model has the trained one's planes."""
        condition, values = self.cell.condition, Values()
        fresh = initial_model(condition.architecture, condition.encoding, self.seed).eval()
        tokens = self.tokens(max(2, self.grid.sequences // 2))
        for state, each in zip(STATES, (fresh, model), strict=True):
            for (where, metric), value in head_distances(each, changes, tokens, self.grid.dropped).items():
                values[self.cell.at(state=state, **dict(where)), metric, self.cell.train_length] = value
        return values

    def changes(self, model: Transformer) -> BandChanges:
        """Bands and controls of the trained model."""
        tokens = self.tokens(max(2, self.grid.sequences // 4))
        return BandChanges.of(model, model.architecture.heads, tokens, self.grid.dropped, self.seed)

    def tokens(self, sequences: int) -> Int[Tensor, "sequence position"]:
        """Test sequences of the training length."""
        source, length = self.cell.condition.recipe.source, self.cell.train_length
        if isinstance(source, Text):
            return held_out_tokens(source, sequences, length)
        return source.draw(random_stream(self.seed, f"{Split.TEST}/planes"), sequences, length).tokens

    def score(self, model: Transformer, stretch: int = 1) -> float:
        """Loss or accuracy on test sequences of so many training lengths."""
        found = scored_on_test(self, model, stretch, self.grid.sequences)
        return found.loss if self.scored == LOSS.name else found.accuracy


def scored_on_test(unit: LanguageUnit, model: Transformer, stretch: int, sequences: int) -> HeldOut:
    """How well a model does on test sequences of so many training lengths: fewer of longer ones, as many tokens."""
    recipe = dataclasses.replace(unit.cell.condition.recipe, evaluation_windows=max(1, sequences // stretch))
    return held_out(model, recipe, unit.seed, stretch * unit.cell.train_length, Split.TEST)


@dataclass(frozen=True)
class FilterUnit(LanguageUnit):
    """One small language model with absolute positions: bands taken out of the means of queries and keys."""

    grid: Grid = FULL

    @property
    def aspect(self) -> str:
        """Bands."""
        return "bands of means"

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """Loss at every length, and every head's distance."""
        length = self.cell.train_length
        found: list[tuple[Cell, str, int]] = [
            (self.cell.at(scope=ALL, change=name), LOSS.name, stretch * length)
            for name in (NONE, *FILTERED)
            for stretch in STRETCHES
        ]
        for name in FILTERED:
            for layer, head in heads_of(self.cell):
                part = self.cell.at(scope=ONE, change=name, layer=layer, head=head)
                found += [(part, each.name, length) for each in DISTANCES[:3]]
        return found

    def measured(self, trained: TrainedLanguage) -> Values:
        """Means are measured at each length, on other documents than losses and heads: of validation."""
        model, length, values = trained.model, self.cell.train_length, Values()
        source = self.cell.condition.recipe.source
        assert isinstance(source, Text)
        short = short_wavelength(length)
        heads = heads_of(self.cell)
        for stretch in STRETCHES:
            windows = held_out_tokens(source, max(2, self.grid.sequences // stretch), stretch * length)
            learnt = max(2, MEANS_FROM * self.grid.sequences // stretch)
            means = position_means(model, source.spread(Split.VALIDATION, learnt, stretch * length).tokens)
            for name in (NONE, *FILTERED):
                change = [] if name == NONE else [MeanFilter(heads, means, FILTERED[name], short)]
                with intervening(model, *change):
                    loss = scored_on_test(self, model, stretch, self.grid.sequences).loss
                values[self.cell.at(scope=ALL, change=name), LOSS.name, stretch * length] = loss
                if stretch == 1 and change:
                    values |= self.distances(
                        model, FilterDistances(means, FILTERED[name], self.grid.dropped, short), name, windows
                    )
        return values

    def distances(
        self, model: Transformer, consumer: FilterDistances, name: str, tokens: Int[Tensor, "sequence position"]
    ) -> Values:
        """Of every head, one layer at a time."""
        consume_layers(model, tokens, consumer.consume, len(tokens))
        return {
            (self.cell.at(scope=ONE, change=name, layer=layer, head=head), each.name, self.cell.train_length): field_of(
                found, each.name
            )
            for (layer, head), found in consumer.found.items()
            for each in DISTANCES[:3]
        }
