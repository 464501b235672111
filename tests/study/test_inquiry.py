"""A study and whatever describes itself in the same way are planned, counted and written by one code path."""

from dataclasses import dataclass

from poskernel.encodings import ENCODINGS
from poskernel.models.training import Recipe
from poskernel.study import Axes, Store, Study, status, units_of
from poskernel.study.grid import canonical
from poskernel.study.inquiry import Inquiry, asked_config, asked_units
from poskernel.study.planning import plan
from poskernel.study.units import Unit
from poskernel.tasks import TASKS

AXES = Axes((ENCODINGS["nope"],), (TASKS["prev"],), tiers=(1,), seeds=(0,), lengths=(30,), recipe=Recipe(steps=1))
STUDY = Study("small", "Is it one path?", (AXES,))


@dataclass(frozen=True)
class Question:
    """Asks for the second of the study's units alone."""

    name: str = "second"

    @property
    def config(self) -> dict[str, str]:
        return {"name": self.name}

    def units(self) -> list[Unit]:
        return list(units_of(STUDY)[1:])


def test_both_give_units_and_a_configuration() -> None:
    assert isinstance(Question(), Inquiry)
    assert list(asked_units(STUDY)) == units_of(STUDY) and asked_config(STUDY) == canonical(STUDY, defaults=True)
    assert list(asked_units(Question())) == units_of(STUDY)[1:] and asked_config(Question()) == {"name": "second"}


def test_both_are_planned_and_counted(tmp_path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        assert [each.unit for each in plan(Question(), store)] == units_of(STUDY)[1:]
        assert status(Question(), store)[["kind", "wanted"]].to_numpy().tolist() == [["training", 2]]
        assert set(status(STUDY, store)["kind"]) == {"prediction", "training"}
