"""Units of the circuit test: one pretrained model, one text to choose heads on, one draw of random patterns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from poskernel.attention.estimators.probes import repeated_tokens
from poskernel.attention.interventions.bands import Band, plane_bands
from poskernel.attention.interventions.changes import Intervention, PlaneGain, Translation
from poskernel.attention.interventions.controls import matched_sets, plane_energies
from poskernel.attention.interventions.planes import Head, RotaryPlanes, every_plane, rotary_planes
from poskernel.attention.sources.huggingface import HuggingFaceSource
from poskernel.errors import InputError
from poskernel.experiments.experiment import ExperimentUnit, Quantity
from poskernel.experiments.pretrained.circuit import (
    FURTHEST,
    Circuit,
    CircuitState,
    carrying_planes,
    circuit_state,
    induction_heads,
    previous_token_heads,
)
from poskernel.experiments.pretrained.models import RealModelCell, opened, text_windows
from poskernel.study.grid import Cell
from poskernel.study.units import Measurement

PROTOCOL = "circuit"
OFFSET, PLANES, GAIN = 1, 3, 0.5
"""The planes of each previous-token head that carry offset 1 most, and what they are multiplied by."""
SHORT = 4.0
"""Wavelength, positions, up to which a plane counts as short when all are either resolved by the pattern or not."""
DRAWN = ("energy-matched", "other heads moved by 1")
"""Changes with something random in them, which are drawn several times."""
CHANGES = (
    "none",
    "damped",
    "damped, heads with a control",
    "energy-matched",
    "moved by 1",
    "moved by 2",
    "moved by -1",
    "other heads moved by 1",
    "induction without resolved planes",
    "induction without unresolved planes",
)
SHIFTS = {0: "copied", 1: "ahead_1", 2: "ahead_2", 3: "ahead_3", -1: "itself"}
STATE_MEASURES = (
    Quantity("induction", "attention of the induction heads after earlier occurrences of their token"),
    Quantity("copied", "share of rows in the repeat at which the model predicts the right next token"),
    *(Quantity(f"ahead_{k}", f"the same of the token {k} after the right one") for k in (1, 2, 3)),
    Quantity("itself", "the same of the token that the row is at"),
    *(Quantity(f"attended_{d}", f"attention of the previous-token heads at offset {d}") for d in range(FURTHEST + 1)),
)
UNCONTROLLED = "undefined: no head has random planes of the same energy"
COUNTS = (
    Quantity("previous_heads", "previous-token heads found"),
    Quantity("induction_heads", "induction heads found"),
    Quantity("controlled_heads", "previous-token heads that have random planes of the same energy in every draw"),
)


@dataclass(frozen=True)
class CircuitSize:
    """How much is run."""

    texts: int = 5
    """Heads are chosen on one of so many disjoint texts: that of the seed."""
    choosing: tuple[int, int] = (6, 256)
    """Sequences and length of the text."""
    patterns: int = 4
    """Random patterns that come twice, as many for choosing induction heads as for testing."""
    period: int = 50
    draws: int = 2
    dropped: int = 16
    changed: tuple[str, ...] = CHANGES


@dataclass(frozen=True)
class CircuitUnit(ExperimentUnit):
    """Every change of the circuit, on the same patterns."""

    cell: RealModelCell
    size: CircuitSize = CircuitSize()

    @property
    def cost(self) -> float:
        """Minutes."""
        return 3.0

    @property
    def aspect(self) -> str:
        """The circuit."""
        return "circuit"

    @property
    def changes(self) -> list[tuple[str, int]]:
        """(name, draw) of every change."""
        return [(name, draw) for name in self.size.changed for draw in range(self.size.draws if name in DRAWN else 1)]

    def cell_of(self, name: str, draw: int) -> RealModelCell:
        """The cell of a change."""
        return self.cell.at(protocol=PROTOCOL, change=name, draw=draw)

    @property
    def measures(self) -> Sequence[tuple[Cell, str, int]]:
        """How many heads there are, then the circuit under every change; the length is that of both repeats."""
        length, whole = 2 * self.size.period, self.cell.at(protocol=PROTOCOL)
        counts: list[tuple[Cell, str, int]] = [(whole, each.name, length) for each in COUNTS]
        return counts + [
            (self.cell_of(*change), each.name, length) for change in self.changes for each in STATE_MEASURES
        ]

    def measure(self, weights: Path | None) -> list[Measurement]:
        """Choose heads and planes on text and other patterns, then change them one way after another."""
        loaded, size, length = opened(self.cell.model), self.size, 2 * self.size.period
        source = loaded.source
        text = text_windows(loaded, self.cell.source, self.seed % size.texts, size.texts, *size.choosing)
        circuit = Circuit(
            previous_token_heads(source, text, size.dropped),
            induction_heads(source, size.patterns, size.period, seed=2 * self.seed + 1),
        )
        if not circuit.previous or not circuit.induction:
            raise InputError(
                f"{self.cell.model.name} has {len(circuit.previous)} previous-token and {len(circuit.induction)} "
                "induction heads here: there is no circuit to test."
            )
        prepared = Prepared.of(source, circuit, text, size, self.seed)
        patterns = repeated_tokens(source, size.patterns, size.period, seed=2 * self.seed)
        whole = self.cell.at(protocol=PROTOCOL)
        values: dict[tuple[Cell, str, int], float | str] = {
            (whole, "previous_heads", length): float(len(circuit.previous)),
            (whole, "induction_heads", length): float(len(circuit.induction)),
            (whole, "controlled_heads", length): float(len(prepared.controls)),
        }
        for name, draw in self.changes:
            changes = prepared.changes(name, draw)
            found: dict[str, float] = {}
            if changes is not None:
                found = state_values(circuit_state(source, circuit, patterns, size.period, changes))
            for each in STATE_MEASURES:
                values[self.cell_of(name, draw), each.name, length] = found.get(each.name, UNCONTROLLED)
        return self.done(values)


def state_values(state: CircuitState) -> dict[str, float]:
    """What STATE_MEASURES lists."""
    copied = {name: state.copied[shift] for shift, name in SHIFTS.items()}
    attended = {f"attended_{offset}": mass for offset, mass in state.attended.items()}
    return {"induction": state.induction, **copied, **attended}


@dataclass(frozen=True, eq=False)
class Prepared:
    """Heads and planes of every change."""

    circuit: Circuit
    rotary: Mapping[int, RotaryPlanes]
    carrying: Mapping[Head, tuple[int, ...]]
    controls: Mapping[Head, tuple[tuple[int, ...], ...]]
    """Of every head that has them, a set of random planes a draw."""
    others: tuple[tuple[Head, ...], ...]
    """As many heads outside the circuit, a set a draw."""
    period: int

    @classmethod
    def of(
        cls, source: HuggingFaceSource, circuit: Circuit, text: torch.Tensor, size: CircuitSize, seed: int
    ) -> "Prepared":
        """Planes by what they carry, controls by energy, other heads at random."""
        rotary, generator = rotary_planes(source), torch.Generator().manual_seed(seed)
        carrying = carrying_planes(source, text, rotary, circuit.previous, OFFSET, PLANES, size.dropped)
        energies = plane_energies(source, text[:2], rotary, circuit.previous, size.dropped)
        controls = {}
        for head in circuit.previous:
            drawn = matched_sets(energies[head], carrying[head], size.draws, generator)
            if drawn is not None:
                controls[head] = drawn
        every = [(layer, head) for layer in sorted(rotary) for head in range(source.heads)]
        outside = [head for head in every if head not in {*circuit.previous, *circuit.induction}]
        others = []
        for _ in range(size.draws):
            order = torch.randperm(len(outside), generator=generator)[: len(circuit.previous)]
            others.append(tuple(sorted(outside[place] for place in order.tolist())))
        return cls(circuit, rotary, carrying, controls, tuple(others), size.period)

    def changes(self, name: str, draw: int) -> list[Intervention] | None:
        """The interventions of a change by its name; None for a control where no head has one."""
        controlled = {head: self.carrying[head] for head in self.controls}
        random = {head: sets[draw] for head, sets in self.controls.items()} if name == "energy-matched" else {}
        gains: Mapping[str, tuple[Mapping[Head, Sequence[int]], float]] = {
            "damped": (self.carrying, GAIN),
            "damped, heads with a control": (controlled, GAIN),
            "energy-matched": (random, GAIN),
            "induction without resolved planes": (self.induction_planes(resolved=True), 0.0),
            "induction without unresolved planes": (self.induction_planes(resolved=False), 0.0),
        }
        moves: Mapping[str, tuple[Sequence[Head], float]] = {
            "moved by 1": (self.circuit.previous, 1.0),
            "moved by 2": (self.circuit.previous, 2.0),
            "moved by -1": (self.circuit.previous, -1.0),
            "other heads moved by 1": (self.others[draw], 1.0),
        }
        if name == "none":
            return []
        if name in moves:
            heads, delta = moves[name]
            return [Translation(every_plane(self.rotary, heads), delta, self.rotary)]
        planes, gain = gains[name]
        return [PlaneGain(planes, gain, self.rotary)] if planes else None

    def induction_planes(self, resolved: bool) -> dict[Head, tuple[int, ...]]:
        """Planes of the induction heads whose wavelength fits into both repeats, or those whose does not."""
        found = {}
        for head in self.circuit.induction:
            bands = plane_bands(self.rotary[head[0]].frequencies, 2 * self.period, SHORT)
            near = (*bands[Band.SHORT], *bands[Band.MIDDLE])
            found[head] = near if resolved else bands[Band.UNRESOLVED]
        return found
