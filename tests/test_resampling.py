"""What is drawn: whole clusters, the same whatever the block size."""

import numpy as np

from poskernel import resampling
from poskernel.resampling import Rows
from poskernel.statistics import auc, spearman


def test_whole_clusters_are_drawn():
    drawn = np.concatenate(list(Rows.of(list("aabbbc"), 6).draws(500, seed=0)))
    assert (drawn[:, 0] == drawn[:, 1]).all() and (drawn[:, 2] == drawn[:, 4]).all()
    assert (drawn[:, [0, 2, 5]].sum(1) == 3).all()
    assert drawn[:, 5].max() > 1


def test_blocks_do_not_change_the_draws(monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.random(30), rng.random(30)
    whole = spearman(x, y, seed=5), auc(x, y > 0.5, seed=5).p
    monkeypatch.setattr(resampling, "CELLS_PER_BLOCK", 700)
    assert (spearman(x, y, seed=5), auc(x, y > 0.5, seed=5).p) == whole
