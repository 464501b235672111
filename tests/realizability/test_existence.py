import importlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from cells import kernel
from poskernel.encodings import (
    ENCODINGS,
    T5,
    Alibi,
    Cope,
    Encoding,
    Fire,
    KerpleLog,
    KerplePower,
    Learned,
    LearnedGaussian,
    Nope,
    Randomized,
    RelativeEncoding,
    Rope,
    Shaw,
    Sinusoidal,
)
from poskernel.errors import InputError
from poskernel.kernel import StationaryKernel
from poskernel.realizability.alignment import row_margins
from poskernel.realizability.existence import Exists, existence, order_cycle
from poskernel.realizability.margin_programme import best_margin, margin_constraints
from poskernel.tasks import TASKS, Skip, Targets

MODULE = importlib.import_module("poskernel.realizability.existence")  # the package's attribute is the function
POSITIONAL = reference.POSITIONAL_TASKS


def answers(encoding: Encoding, length: int | None = None, tasks: tuple[str, ...] = POSITIONAL) -> dict[str, str]:
    return {task: str(existence(encoding, TASKS[task], 20, length).answer) for task in tasks}


def only(*solved: str) -> dict[str, str]:
    return {task: "yes" if task in solved else "no" for task in POSITIONAL}


def test_sinusoidal_solves_every_task_at_the_training_length() -> None:
    assert answers(Sinusoidal()) == only(*POSITIONAL)


@pytest.mark.parametrize("task", ["copy", "reverse", "first", "pos2", "pos5"])
def test_sinusoidal_solves_20_and_60_together(task: str) -> None:
    assert existence(Sinusoidal(), TASKS[task], 20, 60).answer is Exists.YES


def test_sinusoidal_solves_reverse_at_20_and_80_together() -> None:
    found = existence(Sinusoidal(), TASKS["reverse"], 20, 80)
    assert found.answer is Exists.YES
    assert found.margin == pytest.approx(0.471, abs=1e-3)


@pytest.mark.parametrize("length", [60, 80])
@pytest.mark.parametrize("task", ["prev", "skip2", "skip3", "skip5", "copy", "first"])
def test_what_rope_solves_jointly_the_sinusoids_do(task: str, length: int) -> None:
    """Every RoPE kernel is a sinusoidal one: cos(t(i-j)), sin(t(i-j)) are products of the features. A quick witness."""
    rope, lengths = Rope().family(20, length), (20, length)
    rows = np.vstack([margin_constraints(rope, TASKS[task].targets(length)) for length in lengths])
    best = best_margin(rows, rope.upper_bounds().numpy())
    assert best.weights is not None
    cosine, sine = torch.from_numpy(best.weights).split(16)
    weights = torch.zeros(32, 32, dtype=torch.float64)  # features: sines, then cosines
    index = torch.arange(16)
    weights[index, index] = weights[16 + index, 16 + index] = cosine
    weights[index, 16 + index], weights[16 + index, index] = sine, -sine
    witness = Sinusoidal().family(20, length).kernel(weights)
    for each in lengths:
        judged = row_margins(witness, TASKS[task].targets(each))
        assert judged.share == 1.0
        assert judged.least >= best.margin - 1e-9


@pytest.mark.parametrize("task", ["pos2", "pos5"])
def test_the_selected_sinusoidal_kernel_is_a_witness_of_interior_positions(task: str) -> None:
    judged = row_margins(kernel("sinusoidal", task), TASKS[task].targets(80))
    assert judged.share == 1.0  # 20 and 60 are its first rows


@pytest.mark.parametrize("length", [None, 60, 80])
def test_rope_solves_all_but_reverse_and_interior_positions(length: int | None) -> None:
    assert answers(Rope(), length) == only("prev", "skip2", "skip3", "skip5", "copy", "first")


@pytest.mark.parametrize(("length", "margin"), [(60, 0.62), (80, 0.11)])
def test_a_rope_kernel_for_copy_exists_jointly(length: int, margin: float) -> None:
    """Its zeros are the rule's choice; the impossibility is asymptotic only."""
    found = existence(Rope(), TASKS["copy"], 20, length)
    assert found.answer is Exists.YES
    assert found.margin == pytest.approx(margin, abs=5e-3)
    assert found.upper_bound == pytest.approx(found.margin, abs=1e-6)


@pytest.mark.parametrize("task", ["reverse", "pos2", "pos5"])
def test_rope_s_impossible_tasks_hold_a_two_cycle(task: str) -> None:
    found = existence(Rope(), TASKS[task], 20)
    assert found.answer is Exists.NO
    assert found.upper_bound == 0.0
    cycle = order_cycle(TASKS[task].targets(20))
    assert cycle is not None
    assert len(cycle) == 2
    assert f"{cycle[0]} > {cycle[1]} > {cycle[0]}" in found.reason


@pytest.mark.parametrize("length", [None, 60, 80])
def test_nope_and_alibi_solve_nothing_and_a_free_slope_first_only(length: int | None) -> None:
    assert answers(Nope(), length) == only()
    assert answers(Alibi(), length) == only()
    assert answers(Alibi(free_slope=True), length) == only("first")


def test_learned_solves_everything_short_and_absolute_targets_long() -> None:
    assert answers(Learned()) == only(*POSITIONAL)
    assert answers(Learned(), 60) == only("first", "pos2", "pos5")
    assert "equal features" in existence(Learned(), TASKS["prev"], 20, 60).reason


ONE_KERNEL = [each for each in ENCODINGS.values() if not (each.depends_on_length or each.no_kernel)]


@pytest.mark.parametrize("encoding", ONE_KERNEL, ids=lambda encoding: encoding.name)
@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_short_lengths_conflict_whatever_the_kernel(encoding: Encoding, task: str) -> None:
    for length in (21, 30, 38):
        found = existence(encoding, TASKS[task], 20, length)
        assert found.answer is Exists.CONFLICT
        assert f"other targets at length {length}" in found.reason
    assert existence(encoding, TASKS[task], 20, 39).answer is not Exists.CONFLICT


@pytest.mark.parametrize("length", [None, 60])
def test_buckets_and_clipped_offsets_tie_from_where_they_are_shared(length: int | None) -> None:
    """T5 shares buckets from offset 16 on, Shaw everything from its clip on: no kernel tells such offsets apart."""
    assert answers(T5(), length) == only("prev", "skip2", "skip3", "skip5", *(["copy"] if length is None else []))
    assert answers(Shaw(4), length) == only("prev", "skip2", "skip3")
    for encoding, last in ((T5(), 15), (Shaw(4), 3), (Shaw(16), 15)):
        for offset in (last, last + 1):
            found = existence(encoding, Skip(offset), 20, length)
            assert found.answer is (Exists.YES if offset == last else Exists.NO)
            assert ("equal features" in found.reason) == (offset > last)


def test_all_far_offsets_of_t5_tie() -> None:
    """From 113 on there is one bucket: whatever offset is asked for there, the next one ties with it."""
    far = Skip(112)  # the last of its bucket, which holds nearer offsets as well
    assert existence(T5(), far, 120).answer is Exists.NO
    rows = torch.arange(114, 130)
    weights = torch.randn(32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for offset in range(113, 130):
        deep = rows[rows > offset]
        if len(deep):
            assert row_margins(T5().family(20, 200).kernel(weights), Targets(deep, deep - offset)).share == 0


def test_kerple_with_a_fixed_rate_solves_what_alibi_does() -> None:
    assert answers(KerpleLog()) == only()
    itself = Skip(0)
    assert existence(KerpleLog(), itself, 20, 60).answer is Exists.YES
    assert existence(Alibi(), itself, 20, 60).answer is Exists.YES


@pytest.mark.parametrize(
    ("encoding", "length", "words"),
    [
        (Fire(), None, "not linear in the weights"),
        (Fire(), 60, "not linear in the weights"),
        (KerplePower(), 60, "not linear in the weights"),
        (KerpleLog(free_rate=True), 60, "not linear in the weights"),
        (Randomized(), None, "not linear in the weights on one grid"),
        (Randomized(), 60, "what 'randomized' is at length 60 is drawn at random"),
        (LearnedGaussian(), 60, "what 'learned-iid' is at length 60 is drawn at random"),
        (Cope(), None, "gates that depend on the tokens"),
    ],
)
def test_existence_is_not_asked_where_it_has_no_answer(encoding: Encoding, length: int | None, words: str) -> None:
    found = existence(encoding, TASKS["prev"], 20, length)
    assert found.answer is Exists.NOT_APPLICABLE
    assert (found.margin, found.upper_bound) == (None, None)
    assert words in found.reason


def test_the_trained_rows_of_gaussian_positions_are_fixed_so_existence_is_asked() -> None:
    assert existence(LearnedGaussian(), TASKS["reverse"], 20).answer is Exists.YES


@pytest.mark.parametrize(("scale", "margin"), [(0.05, 2.0e-3), (0.03, 6.9e-4), (0.01, 7.4e-5)])
def test_slow_rope_frequencies_still_hold_a_kernel(scale: float, margin: float) -> None:
    found = existence(Rope(scale=scale), TASKS["skip3"], 20)
    assert found.answer is Exists.YES
    assert found.margin == pytest.approx(margin, rel=0.02)


def test_small_margins_count_as_far_as_rounding_lets_them() -> None:
    """At a thousandth of the frequencies the margin is 7e-7, at 1e-5 it is 7e-11: real, and proved by substitution."""
    for scale, margin in ((1e-3, 7.3e-7), (1e-5, 7.3e-11)):
        found = existence(Rope(scale=scale), TASKS["skip3"], 20)
        assert found.answer is Exists.YES
        assert found.margin == pytest.approx(margin, rel=0.02)


@pytest.mark.parametrize("scale", [1e-7, 1e-9, 1e-12])
def test_what_float64_does_not_hold_is_neither_yes_nor_no(scale: float) -> None:
    """1 - cos loses all digits: the features of all offsets look alike, or on one line."""
    for task in ("prev", "skip3", "first"):
        found = existence(Rope(scale=scale), TASKS[task], 20)
        assert found.answer is not Exists.NO
        assert found.answer is Exists.YES or "float64 does not" in found.reason
    found = existence(Rope(scale=scale), TASKS["prev"], 20)
    assert (found.answer, found.margin, found.proved) == (Exists.UNDECIDED, None, False)


@dataclass(frozen=True)
class Unit(RelativeEncoding):
    """T5's buckets in another unit."""

    name = "unit"
    size: float

    def basis(self, offset: torch.Tensor) -> torch.Tensor:
        return self.size * T5().basis(offset)


@pytest.mark.parametrize("size", [1e-10, 1e-7, 1e5])
def test_no_unit_changes_the_answer(size: float) -> None:
    assert answers(Unit(size)) == answers(T5())
    assert all(existence(Unit(size), TASKS[task], 20).proved for task in POSITIONAL)


def test_every_no_of_the_built_in_encodings_is_proved() -> None:
    for encoding in (Nope(), Alibi(), Alibi(free_slope=True), Learned(), T5(), Shaw(4), KerpleLog(), Rope()):
        for length in (None, 60):
            found = [existence(encoding, TASKS[task], 20, length) for task in POSITIONAL]
            assert all(each.proved for each in found), encoding.name


@pytest.mark.parametrize("seconds", [-1.0, math.nan])
def test_a_time_limit_is_no_less_than_0(seconds: float) -> None:
    with pytest.raises(InputError, match="time limit of existence is"):
        existence(Rope(), TASKS["prev"], 20, seconds=seconds)


def test_no_query_row_is_no_question() -> None:
    with pytest.raises(InputError, match="'skip5' has no query row at length 4"):
        existence(Rope(), TASKS["skip5"], 4)


def test_no_time_leaves_it_undecided_and_uncached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    found = existence(Rope(), TASKS["copy"], 20, 60, seconds=0.0)
    assert found.answer is Exists.UNDECIDED
    assert "stopped at its limit of 0 s" in found.reason
    assert not list(tmp_path.rglob("*.json"))
    assert existence(Rope(), TASKS["copy"], 20, 60).answer is Exists.YES


@given(st.integers(2, 14), st.sampled_from(POSITIONAL))
@settings(deadline=None, max_examples=60)
def test_cycles_match_the_transitive_closure(length: int, task: str) -> None:
    cycle = order_cycle(TASKS[task].targets(length))
    assert (cycle is not None) == reference.offset_order_is_cyclic(task, length)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=7))
@settings(deadline=None)
def test_without_a_cycle_some_profile_solves_the_task_and_with_one_none(keys: list[int]) -> None:
    query = torch.arange(len(keys))
    targets = Targets(query, torch.minimum(torch.tensor(keys), query))
    cycle = order_cycle(targets)
    beats = [
        (int(row - key), row - other)
        for row, key in zip(query.tolist(), targets.key.tolist(), strict=True)
        for other in range(row + 1)
        if other != key
    ]
    if cycle is not None:
        assert all(pair in beats for pair in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        # No shorter one: the powers of the relation have an empty diagonal until then.
        step = torch.zeros(len(keys), len(keys), dtype=torch.long)
        step[tuple(torch.tensor(beats).T)] = 1
        walk = step
        for _ in range(len(cycle) - 1):
            assert not walk.diagonal().any()
            walk = (walk @ step).clamp(max=1)
        return
    height = [0.0] * len(keys)
    for _ in keys:
        for better, worse in beats:
            height[better] = max(height[better], height[worse] + 1)
    profile = torch.tensor(height, dtype=torch.float64)
    assert row_margins(StationaryKernel(lambda offset: profile[offset]), targets).share == 1.0


def test_answers_are_cached_by_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    first = existence(Rope(), TASKS["prev"], 20, 40)
    (path,) = tmp_path.rglob("*.json")
    assert json.loads(path.read_text()) == asdict(first)

    def fail(*_: object) -> None:
        raise AssertionError("solved again")

    with monkeypatch.context() as patch:
        patch.setattr(MODULE, "programme_answer", fail)
        assert existence(Rope(), TASKS["prev"], 20, 40) == first
        for other in (Rope(base=9999.0), Rope(frequencies=15), Rope(scale=0.9)):
            with pytest.raises(AssertionError, match="solved again"):
                existence(other, TASKS["prev"], 20, 40)
        with pytest.raises(AssertionError, match="solved again"):
            existence(Rope(), TASKS["prev"], 20, 40, cache=False)


def test_a_bound_is_part_of_the_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    assert existence(Alibi(free_slope=True), TASKS["first"], 20).answer is Exists.YES
    assert existence(Alibi(), TASKS["first"], 20).answer is Exists.NO


@pytest.mark.parametrize(
    "damage", ["", "{", "null", "[1]", '"yes"', "{}", '{"answer": "maybe"}', '{"answer": "yes", "x": 1}']
)
def test_a_damaged_entry_is_computed_anew(damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path))
    first = existence(Rope(), TASKS["prev"], 20)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(damage)
    assert existence(Rope(), TASKS["prev"], 20) == first
    assert json.loads(path.read_text()) == asdict(first)


def test_a_cache_that_cannot_be_written_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("POSKERNEL_CACHE", str(tmp_path / "file"))
    assert existence(Rope(), TASKS["prev"], 20).answer is Exists.YES
    assert "the answer is not cached: cannot write" in caplog.text


@pytest.mark.parametrize("length", [20, 3])
def test_a_length_must_lie_beyond_the_training_length(length: int) -> None:
    with pytest.raises(InputError, match=f"length {length} is not beyond the training length 20"):
        existence(Rope(), TASKS["prev"], 20, length)


def test_content_tasks_have_no_kernel_at_stake() -> None:
    with pytest.raises(InputError, match="'induction' has no positional target"):
        existence(Rope(), TASKS["induction"], 20)


def test_a_limit_that_was_not_reached_is_not_named() -> None:
    """The margin is real but below what float64 resolves: time would not help."""
    found = existence(Rope(scale=1e-7), TASKS["skip3"], 20)
    assert found.answer is Exists.UNDECIDED
    assert "limit" not in found.reason
