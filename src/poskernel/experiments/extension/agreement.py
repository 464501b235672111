"""Predicted against measured kernels of many heads: how well shapes, peaks and attention agree."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from poskernel.attention.closed_form import fast_size
from poskernel.attention.extension.survival import half_spans, peaks_of
from poskernel.attention.sources.capture import LayerCapture


class LagMeans:
    """g of every head, from the queries and keys that attention itself used: no frequency and no plane enters."""

    def __init__(self, length: int, dropped: int) -> None:
        self.kept, self.dropped = length - dropped, dropped
        self.reach = (self.kept + 1) // 2
        self.total: dict[int, Tensor] = {}
        self.sequences: dict[int, int] = {}

    def consume(self, capture: LayerCapture) -> None:
        """Add one layer of a batch."""
        with torch.inference_mode():
            size = fast_size(self.kept + self.reach - 1)
            group = capture.heads // capture.key.shape[1]
            for query, key in zip(capture.query, capture.key, strict=True):
                left = torch.fft.rfft(query[:, self.dropped :].double().mT, size)
                right = torch.fft.rfft(key[:, self.dropped :].double().mT, size).repeat_interleave(group, 0)
                lags = torch.fft.irfft((left * right.conj()).sum(1), size)[:, : self.reach]
                g = capture.scale * lags / torch.arange(self.kept, self.kept - self.reach, -1)
                self.total[capture.layer] = self.total.get(capture.layer, torch.zeros_like(g)) + g
                self.sequences[capture.layer] = self.sequences.get(capture.layer, 0) + 1

    def profile(self, layers: list[int]) -> Float[Tensor, "head offset"]:
        """Means over sequences, the heads of the given layers one after the other."""
        return torch.cat([self.total[layer] / self.sequences[layer] for layer in layers])


def correlations(first: Float[Tensor, "head offset"], second: Float[Tensor, "head offset"]) -> Float[Tensor, " head"]:
    """Pearson correlation over offsets, a head at a time."""
    one, two = (values - values.mean(1, keepdim=True) for values in (first, second))
    return (one * two).sum(1) / (one.square().sum(1) * two.square().sum(1)).sqrt()


def root_mean_squares(
    first: Float[Tensor, "head offset"], second: Float[Tensor, "head offset"]
) -> Float[Tensor, " head"]:
    """Root mean square difference without its mean over offsets, nats: softmax ignores a constant."""
    return (first - second).std(1, correction=0)


def aligned_share(
    profile: Float[Tensor, "head offset"], peak: Int[Tensor, " head"], first: int
) -> Float[Tensor, " head"]:
    """Share of rows from `first` on, as far as the profile goes, whose strict maximum is the given offset."""
    height = profile.gather(1, peak[:, None])
    rival = profile.scatter(1, peak[:, None], -torch.inf).cummax(1).values
    return (rival[:, first:] < height).double().mean(1)


def agreement(
    predicted: Float[Tensor, "head offset"],
    measured: Float[Tensor, "head offset"],
    own: Float[Tensor, "head offset"],
    decided: Bool[Tensor, " head"],
    first: int,
) -> dict[str, float]:
    """Numbers over heads: `own` is the unscaled kernel at the same offsets, the baseline; rows below `first` are old.

    Peaks, alpha and mass are over the decided heads, about each head's own peak.
    """
    found: dict[str, float] = {}
    for name, values in (("", predicted), ("unchanged_", own)):
        correlation, distance = correlations(values, measured), root_mean_squares(values, measured)
        found |= {
            f"{name}correlation": float(correlation.quantile(0.5)),
            f"{name}correlation_p10": float(correlation.quantile(0.1)),
            f"{name}rms": float(distance.quantile(0.5)),
            f"{name}total_variation": float(
                (0.5 * (values.softmax(1) - measured.softmax(1)).abs().sum(1)).quantile(0.5)
            ),
        }
    if not bool(decided.any()):
        return found
    profiles = {"predicted": predicted[decided], "measured": measured[decided]}
    home = peaks_of(own[decided]).offset
    spans = half_spans(own[decided], home)
    offset = torch.arange(own.shape[1])
    inside = (offset >= spans[:, :1]) & (offset <= spans[:, 1:])
    peaks = {name: peaks_of(values).offset for name, values in profiles.items()}
    found["peak_match"] = float((peaks["predicted"] == peaks["measured"]).double().mean())
    found["unchanged_peak_match"] = float((home == peaks["measured"]).double().mean())
    for name, values in profiles.items():
        found[f"{name}_kept"] = float((peaks[name] == home).double().mean())
        found[f"{name}_mass"] = float((values.softmax(1) * inside).sum(1).mean())
        if own.shape[1] > first:
            found[f"{name}_alpha"] = float(aligned_share(values, home, first).mean())
    return found
