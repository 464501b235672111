"""Against TransformerLens: python benchmarks/transformerlens.py PYTHON [--tiny] (about three minutes).

PYTHON is that of an environment with transformer-lens 4.3.0 (`python3 -m venv tl && tl/bin/pip install
torch==2.13.0 transformer-lens==4.3.0`), which has no need of this package. Both sides compute g and the
unbiased row-centred R2 of every head of one GPT-NeoX of Pythia-70m's shape with the same random weights, from the same
sequences, by pairs within the batch, and neither computes the logits over the vocabulary. Each runs in a fresh process;
its memory is what its peak adds to the process with the model loaded and a short pass done (Linux alone says that).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from record import write

ROUNDS = 3
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Shape:
    """Pythia-70m's, and the text."""

    vocabulary: int = 50_304
    width: int = 512
    layers: int = 6
    heads: int = 8
    hidden: int = 2048
    sequences: int = 4
    length: int = 2048
    dropped: int = 16


TINY = Shape(vocabulary=200, width=64, layers=2, heads=4, hidden=128, length=128)

PREAMBLE = """
import json, sys, time
import numpy as np, torch
torch.set_grad_enabled(False)
folder, what, shape, rounds = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
tokens = torch.from_numpy(np.load(folder + "/tokens.npy"))
"""
"""What both sides begin with."""

CLOSING = """
act = plain if what == "plain" else measured

# MB of the process: VmRSS now, VmHWM at most since it was last cleared.
def memory(name):
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith(name)).split()[1]) / 1024

whole, tokens = tokens, tokens[:, :32]
plain()
tokens = whole
with open("/proc/self/clear_refs", "w") as highest:
    highest.write("5")
before, times = memory("VmRSS"), []
for _ in range(rounds):
    start = time.perf_counter()
    result = act()
    times.append(time.perf_counter() - start)
if what == "measured":
    np.savez(folder + "/" + side + ".npz", g=result[0], r2=result[1])
print(json.dumps({"seconds": sorted(times)[len(times) // 2], "extra": memory("VmHWM") - before}))
"""
"""What both end with."""

THEIRS = PREAMBLE + '''
side = "theirs"
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformer_lens.model_bridge import TransformerBridge

# The bridge wants a tokenizer, which nothing uses here: tokens are given as numbers.
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a")), eos_token="b")
loaded = AutoModelForCausalLM.from_pretrained(folder + "/model", attn_implementation="eager").eval()
model = TransformerBridge.boot_transformers(folder + "/model", hf_model=loaded, tokenizer=tokenizer, device="cpu")
dropped = shape["dropped"]
kept = shape["length"] - dropped
index = (torch.arange(kept)[:, None] - torch.arange(kept)).tril()
seen, counts = torch.ones(kept, kept).tril(), torch.arange(kept, 0, -1).double()

def plain():
    model(tokens, return_type=None, stop_at_layer=shape["layers"])

def gram(logits):
    """Diagonal means of one head's logits of one sequence, and the row-centred logits and kernel."""
    logits = logits[dropped:, dropped:].tril()
    g = torch.zeros(kept, dtype=torch.float64).index_add_(0, index.flatten(), logits.flatten().double()) / counts
    rows = seen.sum(1, keepdim=True)
    centred = (logits - logits.sum(1, keepdim=True) / rows) * seen
    kernel = g[index].float() * seen
    return g, centred, (kernel - kernel.sum(1, keepdim=True) / rows) * seen

def head_of(scores):
    """g and R2 of one head from the scores [sequence, query, key], by pairs within the batch."""
    gs, total, residual, square, residual_square = [], 0, 0, 0.0, 0.0
    for one in scores:
        g, centred, kernel = gram(one)
        rest = centred - kernel
        gs.append(g)
        total, residual = total + centred, residual + rest
        square += float((centred.double() ** 2).sum())
        residual_square += float((rest.double() ** 2).sum())
    unexplained = float((residual.double() ** 2).sum()) - residual_square
    return torch.stack(gs).mean(0), 1 - unexplained / (float((total.double() ** 2).sum()) - square)

def measured():
    """A hook a layer, which sees the scores of all heads and keeps nothing of their size."""
    found = {}
    def look(scores, hook):
        found[hook.name] = [head_of(scores[:, head]) for head in range(scores.shape[1])]
    model.run_with_hooks(
        tokens, return_type=None, stop_at_layer=shape["layers"],
        fwd_hooks=[("blocks.%d.attn.hook_attn_scores" % layer, look) for layer in range(shape["layers"])],
    )
    g = np.stack([[g.numpy() for g, _ in found[layer]] for layer in sorted(found)])
    return g, np.array([[r2 for _, r2 in found[layer]] for layer in sorted(found)])
''' + CLOSING  # fmt: skip

OURS = PREAMBLE + '''
side = "ours"
from transformers import AutoModel
from poskernel.attention.measuring import Subject, measure
from poskernel.attention.sources.huggingface import HuggingFaceSource
source = HuggingFaceSource(AutoModel.from_pretrained(folder + "/model"))

def plain():
    source.forward(tokens, None)

def measured():
    found = measure(Subject(source, tokens, list(range(source.layers)), shape["dropped"], null=False))
    by_layer = (source.layers, source.heads)
    return np.stack([one.g.numpy() for one in found]).reshape(*by_layer, -1), np.array([one.r2.value for one in found]).reshape(by_layer)
''' + CLOSING  # fmt: skip


def save_model(shape: Shape, folder: Path) -> None:
    """Random weights and tokens that both sides read."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    torch.manual_seed(0)
    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=shape.vocabulary,
            hidden_size=shape.width,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.hidden,
            rotary_pct=0.25,
            max_position_embeddings=shape.length,
            tie_word_embeddings=False,
        )
    )
    for name, parameter in model.named_parameters():
        if name.endswith("query_key_value.bias"):  # mean queries and keys, and so a kernel to find
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder / "model")
    np.save(folder / "tokens.npy", torch.randint(0, shape.vocabulary, (shape.sequences, shape.length)).numpy())


def side(python: str, script: str, folder: Path, what: str, shape: Shape) -> dict[str, float]:
    """Seconds and peak MB of one side's plain or measured pass, in a process of its own."""
    command = [python, "-c", script, str(folder), what, json.dumps(asdict(shape)), str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python} failed:\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(python: str, shape: Shape) -> list[dict[str, object]]:
    """Both sides on one model; exits if their numbers differ."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(shape, folder)
        both = {"TransformerLens": (python, THEIRS), "poskernel": (sys.executable, OURS)}
        found = {
            (label, what): side(*both[label], folder, what, shape) for label in both for what in ("plain", "measured")
        }
        theirs, ours = np.load(folder / "theirs.npz"), np.load(folder / "ours.npz")
        differences = {key: float(np.abs(theirs[key] - ours[key]).max()) for key in ("g", "r2")}
        scale = float(np.abs(theirs["g"]).max())
    # A number that is not one fails too.
    if not (differences["g"] <= TOLERANCE * scale and differences["r2"] <= TOLERANCE):
        raise SystemExit(f"the two sides differ: {differences}, g up to {scale}")
    extra = {label: found[label, "measured"]["extra"] for label in both}
    rows: list[dict[str, object]] = [
        {"what": f"{label}: g and R2 of {shape.layers * shape.heads} heads, {shape.sequences} x {shape.length} tokens", "seconds": round(found[label, "measured"]["seconds"], 2), "plain pass, seconds": round(found[label, "plain"]["seconds"], 2), "extra peak MB": round(extra[label]), "plain pass, extra peak MB": round(found[label, "plain"]["extra"])}
        for label in both
    ]  # fmt: skip
    faster = found["TransformerLens", "measured"]["seconds"] / found["poskernel", "measured"]["seconds"]
    rows.append({"what": "TransformerLens / poskernel, time", "ratio": round(faster, 1), "target": "at least 3"})
    rows.append(
        {
            "what": "TransformerLens / poskernel, extra peak memory",
            "ratio": round(extra["TransformerLens"] / max(1.0, extra["poskernel"]), 1),
            "target": "at least 5",
        }
    )
    rows.append(
        {
            "what": "largest difference of g (nats) and of R2",
            "value": f"{differences['g']:.0e}, {differences['r2']:.0e} (g up to {scale:.2f})",
            "target": f"at most {TOLERANCE:.0e} of it",
        }
    )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare and write docs/benchmarks/transformerlens.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="the python of an environment with transformer-lens 4.3.0")
    parser.add_argument("--tiny", action="store_true", help="a small model; nothing written")
    given = parser.parse_args(arguments)
    rows = compared(given.python, TINY if given.tiny else Shape())
    if given.tiny:
        for row in rows:
            print(row)
        return
    write(
        "transformerlens",
        "Against TransformerLens 4.3.0: Pythia-70m's shape",
        "python benchmarks/transformerlens.py PYTHON",
        rows,
    )


if __name__ == "__main__":
    main()
