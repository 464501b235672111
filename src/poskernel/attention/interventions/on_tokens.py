"""An intervention at some tokens only: the queries of a class of words, and no others."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool
from torch import Tensor

from poskernel.attention.interventions.changes import Intervention, Operands
from poskernel.attention.interventions.planes import Head
from poskernel.errors import InputError


@dataclass(frozen=True, eq=False)
class AtQueries(Intervention):
    """Another intervention's change of the queries, where `chosen_queries` is True; every other query stays.

    It holds for one batch, in its order, without a key cache. Raises InputError for changes that are not of queries
    alone (mean filters, logit kernels) and for batches of another shape.
    """

    change: Intervention
    chosen_queries: Bool[Tensor, "batch position"]

    def __post_init__(self) -> None:
        if self.change.positional:
            raise InputError(
                f"{type(self.change).__name__} changes more than queries, which alone belong to single tokens: take a "
                "gain, a translation or a temperature."
            )

    @property
    def chosen(self) -> frozenset[Head]:
        """The heads of the change."""
        return self.change.chosen

    def idle(self, length: int) -> bool:
        """Whether there is no change, or no query that it is for."""
        return self.change.idle(length) or not bool(self.chosen_queries.any())

    def apply(self, operands: Operands) -> Operands:
        """Changed queries at the chosen tokens."""
        changed = self.change.apply(operands)
        if changed is operands:
            return operands
        batch, _, length, _ = operands.query.shape
        if tuple(self.chosen_queries.shape) != (batch, length):
            raise InputError(
                f"queries are chosen in {' x '.join(map(str, self.chosen_queries.shape))} tokens and the model is run "
                f"on {batch} x {length}: choose those of the batch that is run."
            )
        chosen = self.chosen_queries.to(operands.query.device)[:, None, :, None]
        return replace(changed, query=torch.where(chosen, changed.query, operands.query))
