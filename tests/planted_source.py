"""A source of heads with planted kernels, and tokens for it."""

import torch

from poskernel.attention.sources.capture import AttentionSource, LayerCapture


class PositionSource(AttentionSource):
    """Two layers of heads with planted kernels plus a little content; no tokenizer."""

    name, layers, heads, vocabulary, position_limit, dtype = "planted", 2, 3, 50, 64, torch.float32

    def __init__(self, causal=True):
        self.causal, self.passes = causal, 0
        offset = torch.arange(64)[:, None] - torch.arange(64)
        self.kernels = torch.stack(
            [6.0 * (offset == 1), 6.0 * (offset == (5 if causal else -5)), torch.exp(-offset.abs() / 4.0) * 6]
        ).float()
        self.content = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)) * 0.3

    def captures(self, tokens):
        length = tokens.shape[1]
        query = self.kernels[:, :length, :length].expand(len(tokens), -1, -1, -1)
        query = query + self.content[tokens][:, None, :, :length]
        key = torch.eye(length).expand(len(tokens), 3, -1, -1)
        for layer in range(2):
            yield LayerCapture(layer, query * (1 - 0.5 * layer), key, 1.0, torch.arange(length), self.causal)

    def forward(self, tokens, consume):
        self.passes += 1
        for capture in self.captures(tokens):
            if consume is not None:
                consume(capture)
        # Each position's own token alone: earlier outputs do not depend on later tokens.
        return self.content[tokens]

    def own_patterns(self, tokens):
        return [torch.stack([part.pattern(head) for head in range(3)], 1) for part in self.captures(tokens)]

    def layer_class(self, layer):
        return "Planted"

    def tried(self):
        return "a plan"


def stream(tokens=1000):
    return torch.randint(0, 50, (tokens,), generator=torch.Generator().manual_seed(1))
