"""Logits with content of known features, and those features written out, one row a pair."""

import torch

from poskernel.attention.content.pair_statistics import BINS, pair_statistics

BATCH = 3


def arrays(layout, seed=0):
    """Logits and content over (query, key), a term of each key, and bins of the content."""
    generator = torch.Generator().manual_seed(seed)
    square = (2, BATCH, layout.length, layout.length)
    logits, content = torch.randn(square, generator=generator, dtype=torch.float64)
    key_term = torch.randn(BATCH, layout.length, generator=generator, dtype=torch.float64)
    edges = torch.tensor([-1.0, -0.3, 0.0, 0.4, 1.1]).double()
    return logits, content + 0.5, key_term, torch.bucketize(content + 0.5, edges, right=True)


def statistics_of(basis, logits, content, key_term, bins):
    layout = basis.layout
    binned = bins.gather(-1, layout.key.expand(len(bins), -1, -1))
    return pair_statistics(
        basis, layout.by_offset(layout.centred(logits)), layout.by_offset(content), layout.of_key(key_term), binned
    )


def dense_features(basis, content, key_term, bins):
    """[sequence, pair, feature], row-centred, by loops over features."""
    layout = basis.layout
    place = torch.zeros(layout.length, layout.length, dtype=torch.long)
    for column, offset in enumerate(layout.offsets.tolist()):
        for t in range(layout.length):
            if 0 <= t - offset < layout.length:
                place[t, t - offset] = column
    columns = [basis.functions[:, j][place].expand(BATCH, -1, -1) for j in range(basis.count)]
    columns += [content * column for column in columns]
    columns.append(key_term[:, None].expand(-1, layout.length, -1))
    for octave in range(basis.octaves.shape[1]):
        columns += [basis.octaves[:, octave][place] * (bins == number) for number in range(BINS)]
    centred = torch.stack([layout.centred(column.double()) for column in columns], -1)
    return centred[:, layout.mask.bool()]
