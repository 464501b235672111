"""Selection rules: which kernel of a family a fit at the training length picks. All in float64.

A rule is a frozen dataclass with a `select` method; SELECTION_RULES holds one instance a name, and a specification
such as `adam:steps=1500` overrides its fields. Source: section 4 of the realizability paper; defaults that the paper
omits were found by reproducing its values.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from poskernel.encodings import BilinearFamily, KernelFamily, LinearFamily
from poskernel.errors import InputError, MissingExtraError
from poskernel.realizability.margin_programme import best_margin, distinct_rows, margin_constraints
from poskernel.specification import describe, parse_specification
from poskernel.tasks import Targets
from poskernel.threads import one_thread

GRADIENT = 1e-10
"""Norm of the gradient at which the optimum counts as reached."""


@dataclass(frozen=True, eq=False)
class Selection:
    """What a rule picked: weights of the family's shape, or None and why there are none."""

    weights: Float[Tensor, "..."] | None
    note: str = ""


class SelectionRule(ABC):
    """Picks one kernel of a family from its targets at the training length."""

    name: ClassVar[str]

    @abstractmethod
    def select(self, family: KernelFamily, targets: Sequence[Targets], train_length: int) -> list[Selection]:
        """One selection per task, in order. A rule may fit all tasks in one batch."""


@dataclass(frozen=True)
class Adam(SelectionRule):
    """The paper's rule: early-stopped Adam on the mean row cross-entropy, from zero, in the family's own basis.

    Families that are not linear start where they say; where positions are drawn, the loss is the mean over draws. L2
    weight decay is added to the gradient (Adam, not AdamW); weights bounded by the encoding are clamped after
    each step.
    """

    name = "adam"
    steps: int = 400
    learning_rate: float = 0.1
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        if not (self.steps >= 1 and 0 < self.learning_rate < math.inf and 0 <= self.weight_decay < math.inf):
            raise InputError(
                f"adam with {self.steps} steps, learning rate {self.learning_rate}, weight decay {self.weight_decay}: "
                "give at least 1 step, a positive rate and a decay of 0 or more."
            )

    @one_thread()
    def select(self, family: KernelFamily, targets: Sequence[Targets], train_length: int) -> list[Selection]:
        """All tasks in one batch, with the gradient written out: softmax minus one-hot, pulled back to the weights."""
        wanted, row_weight = target_patterns(targets, train_length)
        future = torch.ones(train_length, train_length, dtype=torch.bool).triu(1)
        if family.draws > 1:
            wanted, row_weight = wanted[:, None], row_weight[:, None] / family.draws
        upper = family.upper_bounds().reshape(family.shape)
        bounded = bool(upper.isfinite().any())
        weights = family.start().repeat(len(targets), *(1 for _ in family.shape))
        mean, square = torch.zeros_like(weights), torch.zeros_like(weights)
        first, second, epsilon = 0.9, 0.999, 1e-8
        for step in range(1, self.steps + 1):
            logits = family.grid_logits(weights, train_length).masked_fill_(future, float("-inf"))
            error = logits.softmax(-1).sub_(wanted).mul_(row_weight)
            gradient = family.pull_back(weights, error).add_(weights, alpha=self.weight_decay)
            mean.lerp_(gradient, 1 - first)
            square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            # Both bias corrections, moved out of the arrays: epsilon scales with the second one's root.
            root = (1 - second**step) ** 0.5
            weights.addcdiv_(
                mean, square.sqrt().add_(epsilon * root), value=-self.learning_rate * root / (1 - first**step)
            )
            if bounded:
                weights.clamp_(max=upper)
        return [Selection(each) for each in weights]


@dataclass(frozen=True)
class Optimum(SelectionRule):
    """The exact minimiser of mean row cross-entropy + weight_decay / 2 |w|^2: strictly convex, by Newton's method.

    Solved to a gradient of 1e-10 on the span of the training rows, which loses nothing: other directions are 0 at
    the optimum.
    """

    name = "optimum"
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.weight_decay < math.inf:
            raise InputError(
                f"optimum has weight decay {self.weight_decay}: give a positive one, without it no optimum exists."
            )

    @one_thread()
    def select(self, family: KernelFamily, targets: Sequence[Targets], train_length: int) -> list[Selection]:
        """Each task on its own."""
        if not isinstance(family, LinearFamily):
            return not_linear(self, targets)
        return [self._select_one(family, each, train_length) for each in targets]

    def _select_one(self, family: LinearFamily, targets: Targets, train_length: int) -> Selection:
        span = TrainingSpan(family, train_length)
        rows, seen = span.query_rows(targets)
        upper = span.upper
        weights, fixed = torch.zeros(span.size, dtype=torch.float64), torch.zeros(span.size, dtype=torch.bool)
        while True:
            weights, gradient = self._newton(rows, seen, targets, weights, fixed)
            crossed = (weights > upper) & ~fixed
            released = fixed & (gradient > 0)
            if not (crossed | released).any():
                left = float(gradient[~fixed].norm())
                return Selection(span.lift(weights), "" if left < GRADIENT else f"stopped at a gradient of {left:.1e}")
            fixed = (fixed | crossed) & ~released
            weights = torch.where(fixed, upper.clamp(max=0.0), weights)

    def _newton(
        self,
        rows: Float[Tensor, "row key weight"],
        seen: Bool[Tensor, "row key"],
        targets: Targets,
        weights: Float[Tensor, " weight"],
        fixed: Bool[Tensor, " weight"],
    ) -> tuple[Float[Tensor, " weight"], Float[Tensor, " weight"]]:
        """Damped Newton steps over the weights that are not held fixed; returns weights and their gradient."""
        count, free = len(targets.query), (~fixed).nonzero()[:, 0]
        wanted = rows[torch.arange(count), targets.key]

        def objective(at: Tensor) -> float:
            logits = (rows @ at).masked_fill(~seen, float("-inf"))
            return float((logits.logsumexp(1) - wanted @ at).mean() + self.weight_decay / 2 * (at @ at))

        for _ in range(200):
            share = (rows @ weights).masked_fill(~seen, float("-inf")).softmax(1)
            expected = torch.einsum("rk,rkw->rw", share, rows)
            gradient = (expected - wanted).mean(0) + self.weight_decay * weights
            if float(gradient[free].norm()) < GRADIENT:
                break
            weighted = rows * share[:, :, None].sqrt()
            flat = weighted.flatten(0, 1)
            hessian = (flat.T @ flat - expected.T @ expected) / count
            hessian.diagonal().add_(self.weight_decay)
            step = torch.zeros_like(weights)
            step[free] = -torch.linalg.solve(hessian[free][:, free], gradient[free])
            size, here, slope = 1.0, objective(weights), float(gradient @ step)
            while size > 1e-12 and objective(weights + size * step) > here + 1e-4 * size * slope + 1e-15 * abs(here):
                size /= 2
            weights = weights + size * step
        return weights, gradient


@dataclass(frozen=True)
class MaxMargin(SelectionRule):
    """The l2 max-margin kernel: least |w|^2 with a margin of at least 1 on every query row and wrong key.

    A linear programme decides feasibility first; its margin scales the quadratic one, which otherwise reports a false
    infeasibility where margins are tiny.
    """

    name = "max-margin"

    @one_thread()
    def select(self, family: KernelFamily, targets: Sequence[Targets], train_length: int) -> list[Selection]:
        """Each task on its own."""
        if not isinstance(family, LinearFamily):
            return not_linear(self, targets)
        return [self._select_one(family, each, train_length) for each in targets]

    def _select_one(self, family: LinearFamily, targets: Targets, train_length: int) -> Selection:
        feasible = best_margin(margin_constraints(family, targets), family.upper_bounds().numpy())
        if not feasible.positive:
            return Selection(None, f"no kernel of the family has a positive margin at length {train_length}")
        span = TrainingSpan(family, train_length)
        weights = least_norm(span.margin_rows(targets), span.upper.numpy(), feasible.margin)
        if weights is None:
            return Selection(None, f"the quadratic programme did not converge at LP margin {feasible.margin:.2g}")
        return Selection(span.lift(torch.from_numpy(weights)))


@dataclass(frozen=True)
class MinNorm(SelectionRule):
    """Least-norm weights whose logits fit the 0/1 target pattern of the query rows in the least-squares sense.

    W = pinv(Phi) R pinv(Phi)' for bilinear families, least squares on the offset basis for relative ones. `cutoff` is
    the singular value, relative to the largest, below which a direction counts as null; 0 stands for the usual
    max(rows, columns) x 2.2e-16. The result depends on it: features at length 20 have numerical rank 15 of 20.
    """

    name = "min-norm"
    cutoff: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.cutoff < 1:
            raise InputError(
                f"min-norm has cutoff {self.cutoff}: give a share of the largest singular value, 0 up to 1."
            )

    @one_thread()
    def select(self, family: KernelFamily, targets: Sequence[Targets], train_length: int) -> list[Selection]:
        """Each task on its own."""
        if not isinstance(family, LinearFamily):
            return not_linear(self, targets)
        return [self._select_one(family, each, train_length) for each in targets]

    def _select_one(self, family: LinearFamily, targets: Targets, train_length: int) -> Selection:
        if isinstance(family, BilinearFamily):
            pattern = torch.zeros(train_length, train_length, dtype=torch.float64)
            pattern[targets.query, targets.key] = 1.0
            inverse, note = self._pseudo_inverse(family.values(torch.arange(train_length)))
            return Selection(inverse @ pattern @ inverse.T, note)
        query, key = causal_pairs(targets)
        wanted = (key == targets.key[torch.searchsorted(targets.query, query)]).double()
        # Equal offsets have equal rows: fitting each offset's mean, weighted by its pairs, is the same least squares.
        offset, index, pairs = (query - key).unique(return_inverse=True, return_counts=True)
        mean = torch.zeros(len(offset), dtype=torch.float64).index_add_(0, index, wanted) / pairs
        weight = pairs.double().sqrt()
        design, upper = weight[:, None] * family.design(offset, torch.zeros_like(offset)), family.upper_bounds()
        weights, free = torch.zeros_like(upper), torch.ones_like(upper, dtype=torch.bool)
        while free.any():
            inverse, note = self._pseudo_inverse(design[:, free])
            weights[free] = inverse @ (weight * mean)
            crossed = weights > upper
            if not crossed.any():
                return Selection(weights, note)
            # Weights that would cross their bound of 0 are held there and the others fitted anew.
            free &= ~crossed
            weights[crossed] = 0.0
        return Selection(weights, "every weight is held at its bound")

    def _pseudo_inverse(self, matrix: Float[Tensor, "row column"]) -> tuple[Float[Tensor, "column row"], str]:
        left, singular, right = torch.linalg.svd(matrix, full_matrices=False)
        cutoff = self.cutoff or max(matrix.shape) * torch.finfo(torch.float64).eps
        kept = singular > cutoff * singular[0]
        inverse = (right[kept].T / singular[kept]) @ left[:, kept].T
        return inverse, f"rank {int(kept.sum())} of {min(matrix.shape)} at a cut-off of {cutoff:.2g}"


def not_linear(rule: SelectionRule, targets: Sequence[Targets]) -> list[Selection]:
    """No weights, for a rule that solves programmes, and why."""
    note = f"rule {rule.name} needs logits that are linear in the weights on one grid, use adam"
    return [Selection(None, note) for _ in targets]


class TrainingSpan:
    """Coordinates on the part of a family that the training grid can see; norms are kept.

    For a bilinear family with Phi = U S V', W = V A V' with a small A: directions outside V never touch a training
    logit.
    """

    def __init__(self, family: LinearFamily, train_length: int) -> None:
        self.family = family
        self.train_length = train_length
        if isinstance(family, BilinearFamily):
            left, singular, right = torch.linalg.svd(family.values(torch.arange(train_length)), full_matrices=False)
            self._coordinates, self._right = left * singular, right
            self.size = self._coordinates.shape[1] ** 2
            self.upper = torch.full((self.size,), float("inf"), dtype=torch.float64)
        else:
            self.size, self.upper = family.size, family.upper_bounds()

    def design(self, query: Tensor, key: Tensor) -> Float[Tensor, "pair weight"]:
        """Rows of the linear map from coordinates to the logits of these pairs."""
        if isinstance(self.family, BilinearFamily):
            return (self._coordinates[query][:, :, None] * self._coordinates[key][:, None, :]).flatten(1)
        return self.family.design(query, key)

    def lift(self, coordinates: Float[Tensor, " weight"]) -> Float[Tensor, "..."]:
        """The family's weights."""
        if isinstance(self.family, BilinearFamily):
            side = self._coordinates.shape[1]
            return self._right.T @ coordinates.reshape(side, side) @ self._right
        return coordinates

    def query_rows(self, targets: Targets) -> tuple[Float[Tensor, "row key weight"], Bool[Tensor, "row key"]]:
        """The map for every key of every query row, and which keys are causal (the others hold 0)."""
        keys = torch.arange(self.train_length)
        query = targets.query[:, None].expand(-1, self.train_length)
        seen = keys <= targets.query[:, None]
        rows = torch.zeros(*seen.shape, self.size, dtype=torch.float64)
        rows[seen] = self.design(query[seen], keys.expand_as(query)[seen])
        return rows, seen

    def margin_rows(self, targets: Targets) -> Float[np.ndarray, "constraint weight"]:
        """The map's value at each query row's target less its value at each wrong causal key."""
        query, key = causal_pairs(targets)
        target = targets.key[torch.searchsorted(targets.query, query)]
        wrong = key != target
        return (self.design(query[wrong], target[wrong]) - self.design(query[wrong], key[wrong])).numpy()


def causal_pairs(targets: Targets) -> tuple[Tensor, Tensor]:
    """Every (query, causal key) pair of the query rows."""
    counts = targets.query + 1
    query = targets.query.repeat_interleave(counts)
    key = torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
    return query, key


def target_patterns(
    targets: Sequence[Targets], train_length: int
) -> tuple[Float[Tensor, "task query key"], Float[Tensor, "task query 1"]]:
    """One-hot targets, and 1 / (number of query rows) on the query rows of each task, 0 elsewhere."""
    wanted = torch.zeros(len(targets), train_length, train_length, dtype=torch.float64)
    weight = torch.zeros(len(targets), train_length, 1, dtype=torch.float64)
    for index, each in enumerate(targets):
        wanted[index, each.query, each.key] = 1.0
        weight[index, each.query] = 1 / len(each.query)
    return wanted, weight


def least_norm(
    rows: Float[np.ndarray, "constraint weight"], upper: Float[np.ndarray, " weight"], scale: float
) -> Float[np.ndarray, " weight"] | None:
    """Least |w|^2 with rows w >= 1 and w <= upper (0 or inf), or None.

    `scale` is the margin an LP found with |w| <= 1.
    """
    try:
        import clarabel
    except ImportError:
        raise MissingExtraError("the max-margin rule", "solvers") from None
    from scipy import sparse

    bounded = np.flatnonzero(np.isfinite(upper))
    rows = distinct_rows(rows)
    constraint = sparse.csc_matrix(np.vstack([-rows, np.eye(rows.shape[1])[bounded]]))
    limit = np.concatenate([np.full(len(rows), -scale), upper[bounded]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    identity = sparse.identity(rows.shape[1], format="csc")
    cones = [clarabel.NonnegativeConeT(len(limit))]
    solution = clarabel.DefaultSolver(identity, np.zeros(rows.shape[1]), constraint, limit, cones, settings).solve()
    weights = np.asarray(solution.x) / scale
    # The solver's word is not taken for it: the margins are checked by substitution.
    return weights if np.isfinite(weights).all() and (rows @ weights).min() > 1 - 1e-5 else None


SELECTION_RULES: dict[str, SelectionRule] = {
    "adam": Adam(),
    "optimum": Optimum(),
    "adam0": Adam(weight_decay=0.0),
    "max-margin": MaxMargin(),
    "min-norm": MinNorm(),
}


def rule_label(rule: SelectionRule) -> str:
    """The shortest text that names a rule: its registered name, or its kind with every parameter."""
    registered = (name for name, known in SELECTION_RULES.items() if known == rule)
    return next(registered, None) or describe(rule, rule.name)


def parse_rule(text: str) -> SelectionRule:
    """The rule a text names: `adam`, `max-margin`, `adam:steps=1500`."""
    return parse_specification(SELECTION_RULES, text, "selection rule")
