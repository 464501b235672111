"""A model whose heads have chosen logits: any function of the vectors of its tokens."""

import torch

from poskernel.attention.content.product import ProductSettings
from poskernel.attention.sources.capture import AttentionSource, LayerCapture

LENGTH, VOCABULARY, WIDTH, DROPPED = 34, 24, 6, 2
GENERATOR = torch.Generator().manual_seed(3)
EMBEDDING = torch.randn(VOCABULARY, WIDTH, generator=GENERATOR, dtype=torch.float64)
FORM = torch.randn(WIDTH, WIDTH, generator=GENERATOR, dtype=torch.float64)
WEIGHTS = torch.randn(WIDTH, generator=GENERATOR, dtype=torch.float64)
OFFSET = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
PROFILE = torch.cos(1.3 * OFFSET) * torch.exp(-OFFSET.abs() / 9.0)
SETTINGS = ProductSettings(dropped=DROPPED, components=WIDTH + 1)
TOKENS = torch.randint(0, VOCABULARY, (12, LENGTH), generator=GENERATOR)


class PlantedSource(AttentionSource):
    """Layers whose heads have the logits that functions of the tokens' vectors give, as queries on unit keys."""

    name, vocabulary, position_limit, dtype = "planted", VOCABULARY, None, torch.float64

    def __init__(self, layers, causal=True, window=None, says=True):
        self.planted, self.causal, self.window, self.says = layers, causal, window, says
        self.layers, self.heads = len(layers), len(layers[0])

    def embedding(self):
        return EMBEDDING if self.says else super().embedding()

    def forward(self, tokens, consume):
        vectors = EMBEDDING[tokens]
        key = torch.eye(LENGTH, dtype=torch.float64).expand(len(tokens), 1, -1, -1)
        for layer, heads in enumerate(self.planted):
            # Input of a layer: other vectors than the embedding's, with the positions in them.
            inputs = torch.cat([vectors, torch.sin(torch.arange(LENGTH) * 0.7).expand(len(tokens), -1)[..., None]], -1)
            logits = torch.stack([head(vectors).expand(len(tokens), -1, -1) for head in heads], 1)
            given = {"inputs": inputs} if self.says else {}
            capture = LayerCapture(
                layer, logits, key, 1.0, torch.arange(LENGTH), self.causal, window=self.window, **given
            )
            consume(capture)
        return vectors

    def own_patterns(self, tokens):
        raise NotImplementedError

    def layer_class(self, layer):
        return "Planted"

    def tried(self):
        return "nothing"


def bilinear(vectors):
    return vectors @ FORM @ vectors.transpose(1, 2)


def cosine(vectors):
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    return unit @ unit.transpose(1, 2)


def key_term(vectors):
    return (vectors @ WEIGHTS)[:, None]


def noise(vectors):
    """Independent of everything, yet the same for a sequence in whatever batch it comes."""
    drawn = []
    for sequence in vectors:
        generator = torch.Generator().manual_seed(int(sequence.abs().sum() * 1e6))
        drawn.append(torch.randn(LENGTH, LENGTH, generator=generator, dtype=torch.float64))
    return torch.stack(drawn)
