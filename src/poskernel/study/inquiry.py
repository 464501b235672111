"""What is run unit by unit and kept in the store: a study, or an experiment that describes itself in the same way."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from poskernel.study.grid import Study, canonical
from poskernel.study.units import Unit, units_of


@runtime_checkable
class Inquiry(Protocol):
    """What is run unit by unit and kept in the store, other than a study: an experiment."""

    @property
    def name(self) -> str:
        """What the command line calls it."""

    @property
    def config(self) -> Any:
        """What it sets, as plain JSON values: for the manifest."""

    def units(self) -> Sequence[Unit]:
        """Every unit once, in the order they start."""


def asked_units(asked: Study | Inquiry) -> Sequence[Unit]:
    """The units of a study or an experiment."""
    return units_of(asked) if isinstance(asked, Study) else asked.units()


def asked_config(asked: Study | Inquiry) -> Any:
    """What a study or an experiment sets, as plain JSON values."""
    return canonical(asked, defaults=True) if isinstance(asked, Study) else asked.config
