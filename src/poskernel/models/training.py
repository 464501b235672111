"""Training one small transformer on one task, and its accuracy within and beyond the training length.

Every random number comes from (seed, purpose), with purposes init, data and evaluation, never from what is trained: two
conditions with the same seed see the same sequences in the same order.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from poskernel.encodings import Encoding, parse_encoding
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, Transformer, widened
from poskernel.models.weight_files import read_architecture, read_tensors, write_tensors
from poskernel.random_streams import random_stream
from poskernel.specification import describe
from poskernel.tasks import IGNORED_LABEL, ContentTask, Targets, Task, parse_task

EVALUATION_BATCH = 64
"""Sequences in one forward pass of an evaluation: large enough to amortise overhead, small enough for the cache."""
CHECKPOINT_FORMAT = "poskernel.checkpoint/1"


@dataclass(frozen=True)
class Recipe:
    """How a model is trained and evaluated; the defaults are the realizability study's (its section 5)."""

    steps: int = 2000
    batch: int = 64
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    """Decoupled, as in AdamW."""
    evaluation_sequences: int = 512

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "evaluation_sequences"):
            value = getattr(self, name)
            if isinstance(value, bool) or value != int(value) or value < 1:
                raise InputError(f"{name} of the recipe is {value}: give a whole number of at least 1.")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate of the recipe is {self.learning_rate}: give a positive number.")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight_decay of the recipe is {self.weight_decay}: give 0 or a positive number.")


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model after training, with how it got there."""

    model: Transformer
    task: Task
    recipe: Recipe
    seed: int
    history: Float[Tensor, " step"]
    """Mean cross-entropy over the query rows of each step's batch, nats; shorter where training broke off."""
    train_accuracy: float | None
    """Token accuracy over all query rows at the training length; None where training failed."""
    failure: str | None = None
    """Why training broke off."""


def initial_model(architecture: Architecture, encoding: Encoding, seed: int) -> Transformer:
    """A fresh model with PyTorch's default initialisation; the caller's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(random_stream(seed, "init").get_state())
        return Transformer(architecture, encoding)


def shortest_length(train_length: int) -> int:
    """Shortest training sequence, ceil(L0 / 2): lengths are uniform from there to the training length."""
    return (train_length + 1) // 2


def training_batches(architecture: Architecture, recipe: Recipe, seed: int) -> Iterator[Int[Tensor, "batch position"]]:
    """The recipe's token batches: uniform tokens, one length a batch."""
    stream = random_stream(seed, "data")
    low, high = shortest_length(architecture.train_length), architecture.train_length
    for _ in range(recipe.steps):
        length = int(torch.randint(low, high + 1, (), generator=stream))
        yield torch.randint(architecture.vocabulary, (recipe.batch, length), generator=stream)


class QueryRows:
    """The rows a task scores, and what they have to predict. Targets of a length are worked out once."""

    def __init__(self, task: Task, first: int = 0) -> None:
        self.task, self.first = task, first
        self._targets: dict[int, Targets] = {}

    def __call__(self, tokens: Int[Tensor, "batch position"]) -> tuple[Int[Tensor, " row"], Int[Tensor, "batch row"]]:
        """Rows from `first` on that need logits, and their labels (IGNORED_LABEL where a sequence scores none)."""
        length = tokens.shape[1]
        if isinstance(self.task, ContentTask):
            rows = torch.arange(self.first, length)
            return rows, self.task.labels(tokens)[:, self.first :]
        if length not in self._targets:
            self._targets[length] = self.task.targets(length).rows(self.first, length)
        targets = self._targets[length]
        return targets.query, tokens.index_select(1, targets.key)


def train(
    architecture: Architecture, encoding: Encoding, task: Task, recipe: Recipe | None = None, seed: int = 0
) -> TrainedModel:
    """Train one model on one task.

    Cross-entropy over the query rows alone, AdamW, one length ~ Uniform{ceil(L0 / 2) ... L0} a step. A loss that is not
    finite ends the training: the result then has a failure and no accuracy. Raises InputError where the encoding has
    no model side or the task no query row.
    """
    recipe = Recipe() if recipe is None else recipe
    model, history = initial_model(architecture, encoding, seed), []
    for loss in training_steps(model, task, recipe, seed):
        history.append(loss)
        if not math.isfinite(loss):
            failure = f"the loss is {loss} at step {len(history)} of {recipe.steps}"
            return TrainedModel(model, task, recipe, seed, torch.tensor(history), None, failure)
    accuracy = token_accuracy(
        model, task, architecture.train_length, first=0, sequences=recipe.evaluation_sequences, seed=seed
    )
    return TrainedModel(model, task, recipe, seed, torch.tensor(history), accuracy)


def training_steps(model: Transformer, task: Task, recipe: Recipe, seed: int) -> Iterator[float]:
    """Train a model in place, one step an item: the mean cross-entropy of the step's batch, nats."""
    weights = list(model.parameters())
    flat = flattened(weights)
    optimizer = torch.optim.AdamW([flat], lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True)
    query_rows = QueryRows(task)
    try:
        for tokens in training_batches(model.architecture, recipe, seed):
            rows, labels = query_rows(tokens)
            logits = widened(model(tokens, rows)).flatten(0, 1)
            loss = nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED_LABEL)
            flat.grad = torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, weights)])
            optimizer.step()
            yield loss.item()
    finally:
        for weight in weights:
            weight.data = weight.data.clone()


def flattened(weights: Sequence[nn.Parameter]) -> nn.Parameter:
    """One vector that all weights become views of: an optimizer then takes one step, not one a tensor."""
    flat = nn.Parameter(torch.cat([weight.detach().flatten() for weight in weights]))
    parts = torch.split(flat.data, [weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.data = part.view_as(weight)
    return flat


def evaluate(model: Transformer, task: Task, length: int, sequences: int = 512, seed: int = 0) -> float:
    """Length-generalization accuracy: token accuracy on the task's query rows in [train_length, length).

    Raises InputError where nothing is scored there.
    """
    train_length = model.architecture.train_length
    if length <= train_length:
        raise InputError(f"length {length} is not beyond the training length {train_length}: give a longer one.")
    return token_accuracy(model, task, length, first=train_length, sequences=sequences, seed=seed)


def evaluation_tokens(
    architecture: Architecture, length: int, sequences: int, seed: int
) -> Int[Tensor, "sequence position"]:
    """Uniform tokens of the sequences that an evaluation at that length looks at."""
    stream = random_stream(seed, f"evaluation/{length}")
    return torch.randint(architecture.vocabulary, (sequences, length), generator=stream)


@torch.inference_mode()
def token_accuracy(model: Transformer, task: Task, length: int, *, first: int, sequences: int, seed: int) -> float:
    """Share of the scored rows from `first` on whose largest logit is the label, over fresh sequences of that length.

    The sequences depend on (seed, length) alone. Raises InputError where no row is scored.
    """
    tokens = evaluation_tokens(model.architecture, length, sequences, seed)
    query_rows, right, scored = QueryRows(task, first), 0, 0
    # What an encoding draws depends on (seed, length) too: not on what the model has been evaluated at before.
    with model.position_module.drawing_from(random_stream(seed, f"evaluation/{length}/positions")):
        for batch in torch.split(tokens, EVALUATION_BATCH):
            rows, labels = query_rows(batch)
            right += int((model(batch, rows).argmax(-1) == labels).sum())
            scored += int((labels != IGNORED_LABEL).sum())
    if not scored:
        raise InputError(f"task '{task.name}' scores no row in [{first}, {length}): give another length.")
    return right / scored


def under(model: Transformer, encoding: Encoding) -> Transformer:
    """The same weights with another encoding in place of the model's own: zero-shot, nothing is trained.

    Raises InputError for an encoding that has weights of its own, which nothing has trained here.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        other = model.fresh(encoding)
    if any(True for _ in other.position_module.parameters()):
        raise InputError(
            f"encoding '{encoding.name}' has weights of its own, so a model cannot be put under it without training: "
            "train with it."
        )
    own = {name: weight for name, weight in model.state_dict().items() if not name.startswith("position_module.")}
    other.load_state_dict({**other.state_dict(), **own})
    return other


def save_checkpoint(trained: TrainedModel, path: Path) -> None:
    """Weights, loss history and recipe in one safetensors file; the file is there whole or not at all."""
    model = trained.model
    about = {
        "format": CHECKPOINT_FORMAT,
        "architecture": dataclasses.asdict(model.architecture),
        "encoding": model.encoding.effective,
        "task": describe(trained.task, trained.task.name),
        "recipe": dataclasses.asdict(trained.recipe),
        "seed": trained.seed,
        "train_accuracy": trained.train_accuracy,
        "failure": trained.failure,
    }
    write_tensors(about, {**model.state_dict(), "history": trained.history}, path)


def load_checkpoint(path: Path) -> TrainedModel:
    """What `save_checkpoint` wrote; InputError names a file that is none."""
    about, tensors = read_tensors(path, CHECKPOINT_FORMAT, "give a file of save_checkpoint")
    history = tensors.pop("history")
    model = Transformer(read_architecture(about["architecture"]), parse_encoding(about["encoding"]))
    model.load_state_dict(tensors)
    recipe, accuracy = Recipe(**about["recipe"]), about["train_accuracy"]
    return TrainedModel(model, parse_task(about["task"]), recipe, about["seed"], history, accuracy, about["failure"])
