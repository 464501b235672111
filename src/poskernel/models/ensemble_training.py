"""Training and evaluation of many models in one batch: other encodings, tasks and seeds of one architecture.

A model trained here equals the same model trained alone by `train`, to the rounding of float32. Models of one seed see
the same tokens; those of another have another length in the same step. All are padded to one length: causal attention
never reads what lies behind a row, a mask hides it elsewhere, and padded rows have no label.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings import Encoding
from poskernel.errors import InputError
from poskernel.models.ensemble import Ensemble
from poskernel.models.training import (
    EVALUATION_BATCH,
    Recipe,
    TrainedModel,
    evaluation_tokens,
    initial_model,
    training_batches,
)
from poskernel.models.transformer import Architecture, Transformer, widened
from poskernel.random_streams import random_stream
from poskernel.tasks import IGNORED_LABEL, ContentTask, Task

Work = Callable[[], Tensor]
"""One training step on buffers that stay where they are, to the losses before it."""
Capture = Callable[[Work], Work]
"""Turns such work into a cheaper replay of it. It may do the work on the way: weights are put back afterwards."""
WARM_UP = 3
"""Steps before a capture, in which libraries choose their kernels and allocate what they keep."""


@dataclass(frozen=True)
class Condition:
    """What one model of an ensemble is trained on."""

    encoding: Encoding
    task: Task
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's sequences of every model, padded to one length."""

    tokens: Int[Tensor, "model batch position"]
    labels: Int[Tensor, "model batch position"]
    """IGNORED_LABEL at rows that are not scored, padded ones among them."""
    lengths: tuple[int, ...]
    """Each model's length before padding."""


class Lessons:
    """What the models of an ensemble are asked: tokens by seed, labels by seed and task, each made once and shared."""

    def __init__(self, tasks: Sequence[Task], seeds: Sequence[int], device: torch.device) -> None:
        pairs = list(zip(seeds, tasks, strict=True))
        self.seeds, self.pairs, self._seed_of = list(dict.fromkeys(seeds)), list(dict.fromkeys(pairs)), list(seeds)
        self._of_seed = torch.tensor([self.seeds.index(seed) for seed in seeds], device=device)
        self._of_pair = torch.tensor([self.pairs.index(pair) for pair in pairs], device=device)
        self._keys: dict[tuple[Task, int], Tensor] = {}

    def batch(self, tokens: Sequence[Int[Tensor, "batch _"]], length: int) -> Batch:
        """Every model's sequences and labels, from the tokens of each seed, padded to a length."""
        by_seed, device = dict(zip(self.seeds, tokens, strict=True)), self._of_seed.device
        labels = torch.stack([padded(self.labels(task, by_seed[s]), length, IGNORED_LABEL) for s, task in self.pairs])
        sequences = torch.stack([padded(each, length, 0) for each in tokens])
        return Batch(
            sequences.to(device).index_select(0, self._of_seed),
            labels.to(device).index_select(0, self._of_pair),
            tuple(by_seed[seed].shape[1] for seed in self._seed_of),
        )

    def labels(self, task: Task, tokens: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """Labels of every row; target keys that do not depend on tokens are worked out once a length."""
        if isinstance(task, ContentTask):
            return task.labels(tokens)
        length = tokens.shape[1]
        if (task, length) not in self._keys:
            self._keys[task, length] = task.sequence_targets(tokens[:1])[0]
        keys = self._keys[task, length]
        return tokens.index_select(1, keys.clamp(min=0)).masked_fill(keys < 0, IGNORED_LABEL)


def padded(rows: Int[Tensor, "batch position"], length: int, value: int) -> Int[Tensor, "batch length"]:
    """Rows with `value` behind their end."""
    return nn.functional.pad(rows, (0, length - rows.shape[1]), value=value)


def train_ensemble(
    architecture: Architecture,
    conditions: Sequence[Condition],
    recipe: Recipe | None = None,
    device: torch.device | str = "cpu",
) -> list[TrainedModel]:
    """Train one model for each condition, all in one batch: on the CPU afterwards, in the conditions' order.

    Each equals the model that `train` gives, to the rounding of float32. One whose loss is not finite leaves the others
    alone and is reported with that failure, as `train` does; its weights are of no use. Raises InputError where an
    encoding has no model side, a task no query row, or there is no condition.
    """
    if not conditions:
        raise InputError("an ensemble of 0 models trains nothing: give at least one condition.")
    recipe = Recipe() if recipe is None else recipe
    ensemble = Ensemble([initial_model(architecture, each.encoding, each.seed) for each in conditions], device)
    ordered = [conditions[index] for index in ensemble.order]
    capture = cuda_graph if ensemble.device.type == "cuda" and ensemble.repeatable else None
    steps = ensemble_steps(ensemble, [each.task for each in ordered], [each.seed for each in ordered], recipe, capture)
    history = torch.stack(list(steps), dim=1).cpu()
    ensemble.give_back()
    failures = [first_failure(row, recipe.steps) for row in history]
    sound = [model for model, failure in enumerate(failures) if failure is None]
    accuracies = token_accuracies(
        [ensemble.models[model] for model in sound],
        [ordered[model].task for model in sound],
        [ordered[model].seed for model in sound],
        architecture.train_length,
        first=0,
        sequences=recipe.evaluation_sequences,
        device=device,
    )
    accuracy, trained = dict(zip(sound, accuracies, strict=True)), {}
    for model, (index, condition, failure) in enumerate(zip(ensemble.order, ordered, failures, strict=True)):
        row = history[model] if failure is None else history[model, : failure[0]]
        why = None if failure is None else failure[1]
        trained[index] = TrainedModel(
            ensemble.models[model], condition.task, recipe, condition.seed, row.clone(), accuracy.get(model), why
        )
    return [trained[index] for index in range(len(conditions))]


def first_failure(losses: Float[Tensor, " step"], steps: int) -> tuple[int, str] | None:
    """Number of the first step whose loss is not finite, and what to say of it."""
    bad = (~losses.isfinite()).nonzero()
    if not len(bad):
        return None
    step = int(bad[0]) + 1
    return step, f"the loss is {losses[step - 1].item()} at step {step} of {steps}"


def ensemble_steps(
    ensemble: Ensemble, tasks: Sequence[Task], seeds: Sequence[int], recipe: Recipe, capture: Capture | None = None
) -> Iterator[Float[Tensor, " model"]]:
    """Train an ensemble in place, one step an item: each model's mean cross-entropy in the step's batch, nats.

    Tasks and seeds stand in the ensemble's order. With `capture`, for ensembles that are `repeatable`, every step is
    padded to the training length and replayed from one on fixed buffers.
    """
    if capture is not None and not ensemble.repeatable:
        raise ValueError("lengths change what this ensemble does in a step: train it without a capture.")
    lessons, flat, shape = Lessons(tasks, seeds, ensemble.device), ensemble.flat, ensemble.architecture
    optimizer = torch.optim.AdamW(
        [flat],
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        fused=True,
        capturable=ensemble.device.type == "cuda",
    )

    def step(batch: Batch) -> Tensor:
        losses = losses_of(ensemble, batch)
        gradients = torch.autograd.grad(losses.sum(), ensemble.leaves)
        flat.grad = torch.cat([gradient.flatten() for gradient in gradients])
        optimizer.step()
        return losses.detach()

    replay: Callable[[Batch], Tensor] | None = None
    for tokens in zip(*(training_batches(shape, recipe, seed) for seed in lessons.seeds), strict=True):
        if capture is None:
            yield step(lessons.batch(tokens, max(each.shape[1] for each in tokens)))
            continue
        batch = lessons.batch(tokens, shape.train_length)
        replay = replay or replayed(step, batch, optimizer, capture)
        yield replay(batch)


def losses_of(ensemble: Ensemble, batch: Batch) -> Float[Tensor, " model"]:
    """Mean cross-entropy of each model over its scored rows, nats; the sum's gradients are each model's own."""
    logits = widened(ensemble.logits(batch.tokens, lengths=batch.lengths)).flatten(0, 2)
    labels = batch.labels.flatten()
    losses = nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL, reduction="none")
    return losses.unflatten(0, (len(batch.tokens), -1)).sum(1) / (batch.labels != IGNORED_LABEL).sum((1, 2))


def replayed(
    step: Callable[[Batch], Tensor], batch: Batch, optimizer: torch.optim.Optimizer, capture: Capture
) -> Callable[[Batch], Tensor]:
    """The step captured on copies of a batch, which later batches of the same shape are written over."""
    fixed = Batch(batch.tokens.clone(), batch.labels.clone(), batch.lengths)
    (flat,) = optimizer.param_groups[0]["params"]
    before = flat.detach().clone()
    replay = capture(lambda: step(fixed))
    flat.data.copy_(before)
    for kept in optimizer.state[flat].values():
        kept.zero_()

    def run(batch: Batch) -> Tensor:
        fixed.tokens.copy_(batch.tokens)
        fixed.labels.copy_(batch.labels)
        return replay().clone()

    return run


def cuda_graph(work: Work) -> Work:
    """Work captured as a CUDA graph, which launches all its kernels at once.

    Never run: no GPU was at hand. What surrounds it is tested on the CPU with another capture.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = work()

    def replay() -> Tensor:
        graph.replay()
        return answer

    return replay


@torch.no_grad()
def token_accuracies(
    models: Sequence[Transformer],
    tasks: Sequence[Task],
    seeds: Sequence[int],
    length: int,
    *,
    first: int,
    sequences: int,
    device: torch.device | str = "cpu",
) -> list[float]:
    """`token_accuracy` of many models at once, each on its own task and seed.

    Raises InputError where no row of a task is scored.
    """
    if not models:
        return []
    ensemble = Ensemble(models, device)
    ordered, shape = [tasks[index] for index in ensemble.order], ensemble.architecture
    lessons = Lessons(ordered, [seeds[index] for index in ensemble.order], ensemble.device)
    right, scored = torch.zeros(2, len(models), dtype=torch.int64, device=ensemble.device)
    parts = (evaluation_tokens(shape, length, sequences, seed).split(EVALUATION_BATCH) for seed in lessons.seeds)
    with ExitStack() as drawing:
        for number, group in enumerate(ensemble.groups):
            seed = seeds[ensemble.order[ensemble.group_of.index(number)]]
            stream = random_stream(seed, f"evaluation/{length}/positions")
            drawing.enter_context(group.module.drawing_from(stream))
        for tokens in zip(*parts, strict=True):
            batch = lessons.batch(tokens, length)
            labels = batch.labels[:, :, first:]
            right += (ensemble.logits(batch.tokens, first).argmax(-1) == labels).sum((1, 2))
            scored += (labels != IGNORED_LABEL).sum((1, 2))
    for task, count in zip(ordered, scored.tolist(), strict=True):
        if not count:
            raise InputError(f"task '{task.name}' scores no row in [{first}, {length}): give another length.")
    found = dict(zip(ensemble.order, zip(right.tolist(), scored.tolist(), strict=True), strict=True))
    return [found[index][0] / found[index][1] for index in range(len(models))]
