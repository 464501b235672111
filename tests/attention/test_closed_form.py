"""Closed forms: the dense kernel of every rotary family, extrapolation, turnings, and what the sums keep."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poskernel.attention.closed_form import (
    ClosedFormEstimator,
    ClosedFormKernel,
    cross_moments,
    turned_profile,
)
from poskernel.attention.extension.planes import Turning
from poskernel.attention.sources.rotary_probe import probe_rotation
from poskernel.errors import InputError, RunError
from rotary_captures import FREQUENCIES, LENGTH, noisy

DROPPED = 4


def dense(capture, head, dropped):
    """g by the dense matrix of logits, pair by pair."""
    query = capture.query[:, head, dropped:].double()
    key = capture.key[:, capture.key_head(head), dropped:].double()
    logits = capture.scale * (query @ key.mT).mean(0)
    return torch.stack([logits.diagonal(-offset).mean() for offset in range(len(logits))])


def estimated(capture, **options):
    estimator = ClosedFormEstimator({0: probe_rotation(capture.rotation, capture.query.shape[-1])}, LENGTH, **options)
    estimator.consume(capture)
    return estimator


def rotary_families():
    from families import FAMILIES

    return [name for name, family in FAMILIES.items() if family.rotary]


@pytest.mark.parametrize("family", rotary_families())
def test_the_closed_form_is_the_dense_kernel_of_every_rotary_family(family):
    """Grouped queries, partial rotary, interleaved pairs, norms, two bases, sinks, windows."""
    pytest.importorskip("transformers")
    from families import tiny, tokens
    from poskernel.attention.sources.huggingface import HuggingFaceSource
    from poskernel.attention.sources.rotary_probe import rotary_probes

    source, captures = HuggingFaceSource(tiny(family)), {}
    estimator = ClosedFormEstimator(rotary_probes(source), 32, DROPPED, reach=32 - DROPPED)

    def consume(capture):
        captures[capture.layer] = capture
        estimator.consume(capture)

    source.forward(tokens(3, 32), consume)
    found = estimator.layers()
    assert found
    for forms in found:
        for head in range(forms.heads):
            g = dense(captures[forms.layer], head, DROPPED)
            error = (forms.kernel(head).profile(32 - DROPPED) - g).abs().max() / g.abs().max()
            assert float(error) < 1e-5


def test_the_moments_are_those_of_a_loop_over_pairs():
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(2, 9, 3, dtype=torch.complex128, generator=generator) for _ in range(2))
    found = cross_moments(query, key, 6)
    for head in range(2):
        for plane in range(3):
            for offset in range(6):
                pairs = [query[head, t, plane] * key[head, t - offset, plane].conj() for t in range(offset, 9)]
                torch.testing.assert_close(found[head, plane, offset], sum(pairs) / len(pairs))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 3), st.floats(0.5, 2))
def test_another_turning_is_what_the_same_content_gives_when_turned_so(seed, speed, factor):
    """Predicted and rotated by hand: exact, as the content does not change here."""
    capture = noisy(3, torch.Generator().manual_seed(seed))
    forms = estimated(capture, dropped=DROPPED, reach=LENGTH - DROPPED).layers()[0]
    rates = speed * forms.own.rates
    kernel = forms.kernel(0).with_turning(Turning(rates, factor))
    query, key = (side[:, 0, DROPPED:] for side in capture.before_rotation())
    angle = torch.arange(LENGTH - DROPPED)[:, None] * (speed * FREQUENCIES)
    turn = torch.polar(torch.full_like(angle, factor), angle)
    turned = [torch.complex(*side.chunk(2, -1)) * turn for side in (query, key)]
    logits = capture.scale * torch.einsum("btp,bsp->ts", turned[0], turned[1].conj()).real / 3
    g = torch.stack([logits.diagonal(-offset).mean() for offset in range(LENGTH - DROPPED)])
    torch.testing.assert_close(kernel.profile(LENGTH - DROPPED), g, rtol=1e-8, atol=1e-8)


def test_beyond_the_moments_stand_products_of_late_means():
    capture = noisy(5, torch.Generator().manual_seed(1))
    forms = estimated(capture, dropped=DROPPED, reach=6).layers()[0]
    query, key = (side[:, 0] for side in capture.before_rotation())
    late = DROPPED + (LENGTH - DROPPED) // 2
    means = [torch.complex(*side[:, late:].mean((0, 1)).chunk(2)) for side in (query, key)]
    for offset in (6, 17, 5000):
        turned = means[0] * means[1].conj() * torch.polar(torch.ones(4, dtype=torch.float64), FREQUENCIES * offset)
        expected = capture.scale * float(turned.sum().real)
        assert float(forms.kernel(0).at(torch.tensor([offset]))) == pytest.approx(expected, abs=1e-9)
    overall = forms.kernel(0, means="overall")
    assert not torch.allclose(overall.beyond, forms.kernel(0).beyond)
    assert torch.equal(overall.moments, forms.kernel(0).moments)


def test_a_tail_is_the_mean_of_the_last_measured_moments():
    kernel = estimated(noisy(4, torch.Generator().manual_seed(9)), dropped=DROPPED).layers()[0].kernel(0)
    tailed = kernel.with_tail()
    torch.testing.assert_close(tailed.beyond, sum(kernel.moments[:, d] for d in range(5, 10)) / 5)
    assert torch.equal(tailed.profile(10), kernel.profile(10)) and not torch.equal(
        tailed.profile(11), kernel.profile(11)
    )


def test_content_without_noise_has_no_covariance_part_and_independent_noise_none_on_average():
    """With constant vectors the means say everything; content shared by a query and its key adds to what they say."""
    capture = noisy(4, torch.Generator().manual_seed(2), noise=0.0)
    level = [side.mean(2, keepdim=True).expand_as(side) for side in capture.before_rotation()]
    from rotary_captures import rotary_capture

    still = rotary_capture(*level)
    kernel = estimated(still, dropped=DROPPED).layers()[0].kernel(0)
    assert float(kernel.covariance_part().abs().max()) < 1e-9
    assert kernel.share_of_means == pytest.approx(1)
    shared = torch.randn(40, 1, LENGTH, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    moved = estimated(rotary_capture(shared, shared), dropped=DROPPED).layers()[0].kernel(0)
    assert float(moved.covariance_part()[0]) > 10 * float(moved.covariance_part()[1:].abs().max())
    assert moved.share_of_means < 0.1


def test_sequences_one_by_one_give_what_they_give_together():
    capture = noisy(4, torch.Generator().manual_seed(4), heads=2)
    probe = probe_rotation(capture.rotation, 8)
    own = {"own": {0: Turning(FREQUENCIES)}}
    together = ClosedFormEstimator({0: probe}, LENGTH, DROPPED, turnings=own)
    together.consume(capture)
    forms = together.layers()[0]
    profiles = forms.profiles["own"]
    assert profiles.shape == (4, 2, forms.moments.shape[2])
    expected = turned_profile(forms.moments, forms.content, forms.own, forms.scale)
    torch.testing.assert_close(profiles.mean(0), expected)
    weights = torch.tensor([[0.5, 0.5, 0.0, 0.0]], dtype=torch.float64)
    first = estimated(noisy(4, torch.Generator().manual_seed(4), heads=2), dropped=DROPPED)
    assert first.layers()[0].late.products(weights)[0].shape == (1, 2, 4)


def test_the_kernel_is_one_of_the_package():
    capture = noisy(4, torch.Generator().manual_seed(5))
    kernel = estimated(capture, dropped=DROPPED).layers()[0].kernel(0)
    assert isinstance(kernel, ClosedFormKernel) and kernel.measured == 10
    far = kernel.profile(40_000)
    assert len(far) == 40_000
    torch.testing.assert_close(kernel.logits(torch.tensor([30]), torch.tensor([3, 12]))[0], far[[27, 18]])
    assert float((kernel - kernel).g(30).abs().max()) == 0
    assert kernel.stationarity(20) == pytest.approx(1)
    doubled = kernel.with_turning(Turning(kernel.turning.rates, math.sqrt(2)))
    torch.testing.assert_close(doubled.profile(50), 2 * kernel.profile(50))


def test_what_makes_no_sense_is_said():
    capture = noisy(4, torch.Generator().manual_seed(6))
    kernel = estimated(capture).layers()[0].kernel(0)
    with pytest.raises(InputError, match="4 planes, not 3"):
        kernel.with_turning(Turning(FREQUENCIES[:3]))
    with pytest.raises(InputError, match="give 1 to 8"):
        estimated(capture, reach=9)
    with pytest.raises(InputError, match="24 tokens, not 30"):
        ClosedFormEstimator({0: probe_rotation(capture.rotation, 8)}, 30).consume(capture)
    broken = noisy(2, torch.Generator().manual_seed(7))
    broken.unrotated_query[0, 0, 20] = math.nan
    with pytest.raises(RunError, match="layer 0"):
        estimated(broken).layers()


def test_layers_without_a_probe_are_passed_over():
    estimator = ClosedFormEstimator({}, LENGTH)
    estimator.consume(noisy(2, torch.Generator().manual_seed(8)))
    assert estimator.layers() == []
