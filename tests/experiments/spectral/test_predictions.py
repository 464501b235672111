"""Lines of E4, written before: what was known is marked, what decides is about kernels alone."""

from poskernel.experiments.spectral.predictions import BEHAVIOUR_PREDICTIONS, DISTANCE_PREDICTIONS, PREDICTIONS


def test_what_was_seen_before_is_marked() -> None:
    informed = {each.name for each in PREDICTIONS if each.informed}
    assert {each.name for each in PREDICTIONS if each.name.endswith("SmolLM2")} <= informed
    assert not any(each.informed for each in BEHAVIOUR_PREDICTIONS)


def test_the_claim_is_decided_by_distances() -> None:
    deciding = [each for each in PREDICTIONS if each.deciding]
    assert len(deciding) == 5 and all(each in DISTANCE_PREDICTIONS for each in deciding)
