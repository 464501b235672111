"""Training one small language model, with checkpoints on the way; killed at any time, it goes on where it was.

A folder holds, under one stem a model, the trained model (`STEM.safetensors`), its checkpoints (`STEM-step50`), and
while it is being trained its state (`STEM.state.safetensors`), from which it goes on bit for bit.
"""

import contextlib
import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from poskernel.encodings import Encoding, parse_encoding
from poskernel.errors import InputError
from poskernel.models.ablated import AblatedTransformer, Ablation
from poskernel.models.language import HeldOut, LanguageRecipe, held_out, lesson_loss, training_lesson
from poskernel.models.optimization import Optimization
from poskernel.models.training import initial_model
from poskernel.models.transformer import Architecture, Transformer
from poskernel.models.weight_files import read_architecture, read_tensors, write_tensors

FORMAT = "poskernel.language/1"
UNREADABLE = "delete it and train again"
"""What to do about a file that cannot be read."""
STATE_EVERY = 50
"""Steps between two states that are kept: what a kill can cost."""


@dataclass(frozen=True)
class Condition:
    """One language model to train: together with a seed it says everything."""

    architecture: Architecture
    encoding: Encoding
    recipe: LanguageRecipe = field(default_factory=LanguageRecipe)
    ablation: Ablation = Ablation.NONE

    def initial(self, seed: int) -> Transformer:
        """The model before training; an ablated one begins with the weights of the plain one."""
        plain = initial_model(self.architecture, self.encoding, seed)
        if self.ablation is Ablation.NONE:
            return plain
        model = self.model()
        model.load_state_dict(plain.state_dict())
        return model

    def model(self) -> Transformer:
        """A model to load weights into."""
        if self.ablation is Ablation.NONE:
            return Transformer(self.architecture, self.encoding)
        return AblatedTransformer(self.architecture, self.encoding, self.ablation)


@dataclass(frozen=True, eq=False)
class TrainedLanguage:
    """A language model after training (or at a checkpoint), in evaluation mode, with how it got there."""

    model: Transformer
    step: int
    """Steps it was trained for."""
    history: Float[Tensor, " step"]
    """Mean cross-entropy of each step's batch, nats a token."""
    held_out: Mapping[int, HeldOut]
    """By step: on validation sequences, at the checkpoints and at the end."""
    failure: str | None = None
    """Why training broke off."""


@dataclass(frozen=True)
class Place:
    """Where a model's files lie."""

    folder: Path
    stem: str

    @property
    def final(self) -> Path:
        """The trained model."""
        return self.folder / f"{self.stem}.safetensors"

    @property
    def state(self) -> Path:
        """What an interrupted training goes on from."""
        return self.folder / f"{self.stem}.state.safetensors"

    def checkpoint(self, step: int) -> Path:
        """The weights after a step."""
        return self.folder / f"{self.stem}-step{step}.safetensors"

    def complete(self, recipe: LanguageRecipe) -> bool:
        """Whether the model and all its checkpoints are there."""
        return self.final.is_file() and all(self.checkpoint(step).is_file() for step in recipe.checkpoints)


@dataclass(eq=False)
class Training:
    """A training at some step: what is kept, and what it goes on from."""

    condition: Condition
    seed: int
    place: Place | None
    model: Transformer
    optimization: Optimization
    history: list[float] = field(default_factory=list)
    held_out: dict[int, HeldOut] = field(default_factory=dict)
    failure: str | None = None

    @classmethod
    def begun(cls, condition: Condition, seed: int, place: Place | None) -> "Training":
        """At its start, or where it was broken off."""
        recipe = condition.recipe
        recipe.check_vocabulary(condition.architecture.vocabulary)
        model = condition.initial(seed).train()
        training = cls(condition, seed, place, model, Optimization(list(model.parameters()), recipe.schedule))
        if place is not None and place.state.is_file():
            training.take_up(place.state)
        return training

    def run(self) -> TrainedLanguage:
        """Train to the end, or until the loss is not finite."""
        recipe, length = self.condition.recipe, self.condition.architecture.train_length
        steps = recipe.schedule.steps
        while self.failure is None and self.optimization.steps < steps:
            step = self.optimization.steps
            if step in recipe.checkpoints and step not in self.held_out:
                self.checkpoint()
            loss = self.optimization.step(lesson_loss(self.model, training_lesson(recipe, self.seed, step, length)))
            self.history.append(loss)
            if not math.isfinite(loss):
                self.failure = f"the loss is {loss} at step {step + 1} of {steps}"
            elif self.place is not None and (step + 1) % STATE_EVERY == 0:
                self.keep_state(self.place)
        self.optimization.finish()
        return self.ended()

    def ended(self) -> TrainedLanguage:
        """The trained model, kept where it belongs."""
        self.model.eval()
        if self.failure is None:
            self.measure()
        if self.place is not None:
            write_model(self.here(), self.condition, self.seed, self.place.final)
            with contextlib.suppress(FileNotFoundError):  # another worker may have ended it too
                self.place.state.unlink()
        return self.here()

    def checkpoint(self) -> None:
        """Measure and keep the model as it is now."""
        self.model.eval()
        self.measure()
        if self.place is not None:
            write_model(self.here(), self.condition, self.seed, self.place.checkpoint(self.optimization.steps))
        self.model.train()

    def measure(self) -> None:
        """Held-out loss of the model as it is now."""
        self.held_out[self.optimization.steps] = held_out(self.model, self.condition.recipe, self.seed)

    def here(self) -> TrainedLanguage:
        """The model as it is now."""
        history = torch.tensor(self.history, dtype=torch.float64)
        return TrainedLanguage(self.model, self.optimization.steps, history, dict(self.held_out), self.failure)

    def keep_state(self, place: Place) -> None:
        """Write everything that later steps depend on."""
        tensors = {f"optimization.{name}": tensor for name, tensor in self.optimization.state().items()}
        tensors |= {f"buffer.{name}": tensor for name, tensor in running(self.model).items()}
        tensors["history"] = torch.tensor(self.history, dtype=torch.float64)
        about = about_training(self.condition, self.seed, self.optimization.steps, self.held_out, None)
        write_tensors(about, tensors, place.state)

    def take_up(self, path: Path) -> None:
        """Go on from a kept state; InputError where it is another model's."""
        about, tensors = read_tensors(path, FORMAT, UNREADABLE)
        if about["condition"] != described(self.condition) or about["seed"] != self.seed:
            raise InputError(f"'{path}' is the state of another model: delete it, or give another folder.")
        prefix = "optimization."
        self.optimization.restore({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
        for name, buffer in running(self.model).items():
            buffer.copy_(tensors[f"buffer.{name}"])
        self.history = tensors["history"].tolist()
        self.held_out = measured(about)


def train_language(condition: Condition, seed: int = 0, place: Place | None = None) -> TrainedLanguage:
    """The trained model: from its files if all are there, else trained (on from where it was broken off).

    A loss that is not finite ends the training: the result then has a failure. Raises InputError where an encoding has
    no model side, the vocabulary is not the source's, or a file is another model's.
    """
    if place is not None and place.complete(condition.recipe):
        return read_model(place.final, condition, seed)
    return Training.begun(condition, seed, place).run()


def running(model: Transformer) -> dict[str, Tensor]:
    """What changes in training beside the weights: running means that are part of the model's state."""
    kept = set(model.state_dict())
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def described(condition: Condition) -> dict[str, object]:
    """A condition as plain JSON values, with every effective parameter."""
    recipe = dataclasses.asdict(condition.recipe)
    recipe["source"] = {"name": condition.recipe.source.name, **recipe["source"]}
    whole = {
        "architecture": dataclasses.asdict(condition.architecture),
        "encoding": condition.encoding.effective,
        "recipe": recipe,
        **({} if condition.ablation is Ablation.NONE else {"ablation": condition.ablation}),
    }
    plain: dict[str, object] = json.loads(json.dumps(whole))
    return plain


def about_training(
    condition: Condition, seed: int, step: int, found: Mapping[int, HeldOut], failure: str | None
) -> dict[str, object]:
    """What stands in a file beside its tensors."""
    return {
        "format": FORMAT,
        "condition": described(condition),
        "seed": seed,
        "step": step,
        "held_out": {str(step): dataclasses.asdict(each) for step, each in found.items()},
        "failure": failure,
    }


def measured(about: Mapping[str, Any]) -> dict[int, HeldOut]:
    """Held-out losses out of a file."""
    return {
        int(step): HeldOut(each["loss"], each["accuracy"], int(each["tokens"]))
        for step, each in about["held_out"].items()
    }


def write_model(trained: TrainedLanguage, condition: Condition, seed: int, path: Path) -> None:
    """Weights, history and recipe in one safetensors file; it is there whole or not at all."""
    about = about_training(condition, seed, trained.step, trained.held_out, trained.failure)
    write_tensors(about, {**trained.model.state_dict(), "history": trained.history}, path)


def read_model(path: Path, condition: Condition | None = None, seed: int | None = None) -> TrainedLanguage:
    """What `write_model` wrote, in evaluation mode; with a condition and seed, InputError unless it is theirs."""
    about, tensors = read_tensors(path, FORMAT, UNREADABLE)
    if condition is not None and (about["condition"] != described(condition) or about["seed"] != seed):
        raise InputError(f"'{path}' is another model: delete it, or give another folder.")
    kept, history = about["condition"], tensors.pop("history")
    shape, encoding = read_architecture(kept["architecture"]), parse_encoding(kept["encoding"])
    model = Condition(shape, encoding, ablation=Ablation(kept.get("ablation", Ablation.NONE))).model()
    model.load_state_dict(tensors)
    return TrainedLanguage(model.eval(), about["step"], history, measured(about), about["failure"])
