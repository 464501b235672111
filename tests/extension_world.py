"""Made-up rows of the validation of `extend`, of which the truth is known, and a tiny model to measure real ones on."""

import json
from dataclasses import replace

import torch

from poskernel.experiments.extension.rows import Run, spoken_of
from poskernel.experiments.extension.validation import ExtensionValidation
from poskernel.experiments.extension.verdicts import ExtensionVerdicts
from poskernel.study.store import frame
from study_table import row

TEXTS = ("a", "b", "c")
ASKED = ExtensionValidation(
    "tiny", TEXTS, ("none", "linear:8", "yarn:2"), ("none", "linear:2"), lengths=(32, 64), limit_lengths=(90, 120, 150),
    measured_length=32, sequences=6, dropped=2, fresh=40, window=8, shape=(2, 4),
)  # fmt: skip
RUN = Run(ASKED, "extension", "python -m make.the.rows")
VERDICT_RUN = Run(
    ExtensionVerdicts("tiny", ("a", "b", "c", "d"), ("none", "linear:2"), 64, 32, 6), "verdicts", "python -m judge"
)
SECOND_RUN = Run(replace(ASKED, model="second"), "second", "python -m second")
LEFT_OUT = object()
GOOD = {"correlation": 0.9995, "correlation_p10": 0.995}


def made_up(run, answer):
    """Every planned row; `answer(spoken, metric, length)` gives a number, (None, reason) or LEFT_OUT; else GOOD or 0.5.

    Texts differ by a little, so that intervals have a width.
    """
    rows = []
    for unit in run.asked.units():
        for cell, metric, length in unit.measures:
            spoken = spoken_of(cell)
            found = answer(spoken, metric, length)
            text = spoken["held_out"] or spoken["text"]
            value, reason = found if isinstance(found, tuple) else (found, "")
            if found is LEFT_OUT:
                continue
            if found is None:
                value = GOOD.get(metric, 0.5)
            if value is not None:
                value += 1e-6 * "abcd".index(text)
            rows.append(row(cell, metric, length, unit.run_seed, value, reason=reason))
    return frame(rows)


def nothing_special(spoken, metric, length):
    """The world in which all numbers are GOOD or 0.5."""


def write(run, table, folder, about=None):
    """Rows as a run leaves them, with the manifest that their digest stands in."""
    from hashlib import sha256

    place = folder / run.folder
    place.mkdir(parents=True)
    table.to_parquet(place / "rows.parquet")
    digest = sha256((place / "rows.parquet").read_bytes()).hexdigest()
    manifest = {"schema": "poskernel.manifest/1", "sha256": {"rows.parquet": digest}}
    (place / "manifest.json").write_text(json.dumps(manifest))
    if about is not None:
        (place / "about.json").write_text(json.dumps(about))


def tiny_model(monkeypatch, family="llama", words=200):
    """A tiny model in the place of every one that is opened, its text mostly one token, so that peaks are resolved."""
    from families import tiny, tokens
    from poskernel.attention.extension.measurement import open_rotary
    from poskernel.experiments.extension import cells

    opened = open_rotary(tiny(family))
    opened.source.module.config.tie_word_embeddings = True
    chosen = torch.rand(words, generator=torch.Generator().manual_seed(5)) < 0.9
    text = torch.where(chosen, 7, tokens(1, words, seed=3)[0]).tolist()
    model = replace(opened, encode=lambda name: text)
    caches = (cells.opened_model, cells.text_tokens, cells.unscaled_screen)
    monkeypatch.setattr(cells, "open_rotary", lambda name, device: model)
    monkeypatch.setattr(cells, "text_named", lambda name: f"the text {name}")
    for cache in caches:
        cache.cache_clear()
    return model
