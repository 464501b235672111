"""What every column of the table of heads is called for people, and what it means.

A name in capitals within a column's name stands for any of the names that `PLACEHOLDERS` lists, and in braces in its
label and meaning for what those stand for.
"""

import re
from collections.abc import Mapping

PLACEHOLDERS: Mapping[str, Mapping[str, str]] = {
    "TERM": {
        "position": "position",
        "key": "the key's content",
        "query": "the query's content",
        "interaction": "query's and key's content together",
    },
    "PART": {
        "stationary": "the stationary kernel",
        "key_drift": "mean keys that move with position",
        "query_drift": "mean queries that move with position",
        "joint_drift": "both drifts together",
        "content": "content",
    },
    "VARIANT": {
        "mean": "per-position means",
        "centred": "without per-position means",
        "global": "without the grand mean",
        "whitened": "whitened",
        "whole": "nothing dropped",
        "whole_mean": "per-position means, nothing dropped",
        "whole_centred": "without per-position means, nothing dropped",
        "whole_global": "without the grand mean, nothing dropped",
        "whole_whitened": "whitened, nothing dropped",
    },
    "CONTENT": {
        "match": "same token",
        "cosine": "cosine of embeddings",
        "token": "bilinear form of token embeddings",
        "input": "bilinear form of the layer's input",
    },
    "FIT": {
        "position": "position alone",
        "content": "content alone",
        "sum": "position plus content",
        "additive": "position plus content plus a term of the key alone",
        "product": "position times content",
        "fixed": "position times content, origins at zero",
        "both": "additive form plus product",
        "free": "free bins of offset plus free bins of content",
        "saturated": "a bin for every offset and content together",
    },
}
"""Names that a word in capitals stands for, and what they mean."""
LABELS: Mapping[str, str] = {
    "r2": "R2, unbiased, row-centred",
    "r2_raw": "R2, unbiased, raw",
    "r2_plugin": "R2, plug-in, raw",
    "r2_plugin_centred": "R2, plug-in, row-centred",
    "r2_null": "R2, positions in random order",
    "signal": "signal (nats)",
    "signal_plugin": "signal, plug-in (nats)",
    "share": "stationary share of logit variance",
    "first_mass": "attention on the first token",
    "dropped_mass": "attention on the dropped positions",
    "first_even": "first token under even attention",
    "dropped_even": "dropped positions under even attention",
    "peak_offset": "offset of the peak",
    "half_width": "half-width of the peak",
    "TERM_share": "variance share: {TERM}",
    "total_share": "variance shares, sum",
    "TERM_sequential": "R2 up to: {TERM}",
    "TERM_kl_share": "KL share: {TERM}",
    "divergence": "KL from even attention (nats)",
    "log_z_slope": "log Z slope",
    "crossover": "log Z crossover (row)",
    "positional": "positional score",
    "symbolic": "symbolic score",
    "slope": "slope of g (nats a position)",
    "slope_PART": "slope from {PART}",
    "drift_share": "drift share of the slope",
    "leakage": "absolute-position share",
    "leakage_mask": "absolute-position share, without position 0",
    "leakage_first": "absolute-position share of position 0",
    "VARIANT_r2": "R2: {VARIANT}",
    "VARIANT_r2_raw": "R2, raw: {VARIANT}",
    "VARIANT_r2_plugin": "R2, plug-in, raw: {VARIANT}",
    "VARIANT_r2_plugin_centred": "R2, plug-in, row-centred: {VARIANT}",
    "VARIANT_signal": "signal: {VARIANT}",
    "VARIANT_signal_plugin": "signal, plug-in: {VARIANT}",
    "lines_explained": "rotary lines: share of g explained",
    "lines_explained_resolved": "resolved rotary lines: share of g explained",
    "lines_random": "random lines: share of g explained",
    "lines_p": "rotary against random lines, p",
    "lines_rest": "rotary lines: share of g in no listed amplitude",
    "line_directions": "rotary lines: directions told apart",
    "fourier_peak": "Fourier peak (radians a position)",
    "alignment": "Fourier power at rotary frequencies",
    "alignment_random": "Fourier power at random frequencies",
    "alignment_p": "Fourier power at rotary against random frequencies, p",
    "probe_correlation": "one token repeated: correlation with text",
    "probe_gain": "one token repeated: gain of text",
    "probe_agrees": "one token repeated: agrees with text",
    "toeplitz_error": "one token repeated: distance from a function of the offset (nats)",
    "toeplitz_floor": "one token repeated: rounding allowance (nats)",
    "induction": "induction score",
    "induction_chance": "induction score of even attention",
    "matching": "matching score",
    "matching_chance": "matching score of even attention",
    "r2_untrained": "R2, untrained",
    "signal_untrained": "signal, untrained (nats)",
    "share_untrained": "stationary share, untrained",
    "fit_CONTENT_FIT": "{CONTENT}: {FIT}",
    "fit_CONTENT_product_over_sum": "{CONTENT}: gain of product over sum",
    "fit_CONTENT_both_over_additive": "{CONTENT}: gain of product beside additive form",
    "fit_CONTENT_saturated_over_free": "{CONTENT}: gain of joint bins over free sum",
    "fit_CONTENT_origin": "{CONTENT}: origin in the product",
    "residual_FIT": "residual ratio: {FIT}",
    "residual_FIT_rank": "residual rank: {FIT}",
    "residual_FIT_rank_null": "residual rank, other sequence's keys: {FIT}",
    "residual_FIT_rank_excess": "residual rank less that of other keys: {FIT}",
}
"""What a menu calls the columns that hold one number a head."""
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "kernel": {
        "layer": "layer, from 0",
        "head": "query head of the layer, from 0",
        "r2": "share of the variance of the mean row-centred logits that a function of the offset explains, unbiased",
        "r2_raw": "unbiased R2 without row-centring: a constant per row, which attention ignores, counts",
        "r2_plugin": "R2 of the mean over these sequences, raw: biased down, as sampling noise counts as unexplained",
        "r2_plugin_centred": "R2 of the mean over these sequences, row-centred: biased down by sampling noise",
        "r2_null": "unbiased row-centred R2 after one random order of positions, the same in all sequences",
        "signal": "standard deviation of g over pairs of positions, nats, without its sampling noise",
        "signal_plugin": "standard deviation of g over pairs of positions, nats, with its sampling noise",
        "share": "variance of row-centred g over the within-row variance of single sequences' logits",
        "first_mass": "mean attention on position 0",
        "dropped_mass": "mean attention on the dropped positions",
        "first_even": "what weights spread evenly over the keys of each row put on position 0",
        "dropped_even": "what weights spread evenly over the keys of each row put on the dropped positions",
    },
    "shape": {
        "peak_offset": "offset (query less key) where softmax of g is largest",
        "half_width": "neighbouring offsets with at least half of the peak's weight",
        "kind": "one word, by the table of thresholds",
        "sentence": "the head in words",
        "g": "g at the document's offsets, nats; null at offsets that no pair of positions has",
    },
    "split": {
        "TERM_share": "share of the within-row logit variance that is {TERM}; the four terms are not orthogonal",
        "total_share": "sum of the four terms' shares of the within-row logit variance; not 1 where they correlate",
        "TERM_sequential": "R2 of the terms position, key, query, interaction, added in this order up to {TERM}",
        "TERM_kl_share": "share of KL(attention || uniform) that softmax of {TERM} explains; below 0 if it misleads",
        "divergence": "KL(attention || uniform) of a mean row, nats",
    },
    "distance": {
        "distance_edges": "bin i of distance holds edges[i] to edges[i + 1] - 1",
        "distance_mass": "mean attention in each bin",
        "distance_even": "what evenly spread attention puts into each bin",
        "distance_mass_kept": "attention without the dropped positions as queries and keys, weights adding up to 1",
        "distance_even_kept": "evenly spread attention without the dropped positions",
        "boundary_keys": "rows with so many keys are compared with rows of twice as many",
        "boundary_variation": "total variation between their mean weights, by offset",
        "boundary_noise": "total variation between two halves of the sequences at one row",
        "boundary_kept_keys": "numbers of keys compared, without the dropped positions",
        "boundary_kept_variation": "total variation by offset, without the dropped positions",
        "boundary_kept_noise": "total variation between halves, without the dropped positions",
        "log_z_slope": "slope of log Z of g against log row at the last rows: 0 settled, 1 bounded for ever",
        "crossover": "first row from which the slope of log Z stays above 1/2; null if none",
    },
    "symbolic": {
        "positional": "agreement of logits before and after key vectors change places: 1 if they stay with the place",
        "symbolic": "agreement of logits before and after key vectors change places: 1 where they move with the keys",
        "plane_frequencies": "radians a position, falling; 0: dimensions that do not turn",
        "plane_positional": "positional score of each rotary plane",
        "plane_symbolic": "symbolic score of each rotary plane",
        "plane_energy": "each plane's within-row variance over that of the logits",
    },
    "drift": {
        "slope": "least-squares slope of g, nats a position",
        "slope_PART": "part of the slope of g that comes from {PART}; the five add up to it",
        "drift_share": "share of the slope of the position term that drifts of mean queries and keys make",
    },
    "leakage": {
        "leakage": "share of within-row logit variance that is a function of absolute positions",
        "leakage_mask": "share that is a function of absolute positions once position 0 is left out",
        "leakage_first": "share that is a function of absolute positions because of position 0",
    },
    "variants": {
        "VARIANT_r2": "R2, unbiased and row-centred, of the Gram of queries and keys: {VARIANT}",
        "VARIANT_r2_raw": "R2, unbiased and raw, of the Gram of queries and keys: {VARIANT}",
        "VARIANT_r2_plugin": "R2, plug-in and raw, of the Gram of queries and keys: {VARIANT}",
        "VARIANT_r2_plugin_centred": "R2, plug-in and row-centred, of the Gram of queries and keys: {VARIANT}",
        "VARIANT_signal": "standard deviation of g of this Gram, nats (whitened: no unit): {VARIANT}",
        "VARIANT_signal_plugin": "standard deviation of g of this Gram with its sampling noise: {VARIANT}",
    },
    "tokens": {
        "token_queries": "query positions in the first sequence, whose tokens the document lists as words",
        "token_keys": "for each query, the key positions with most of its attention",
        "token_weights": "attention weights of those keys",
    },
    "spectrum": {
        "lines_explained": "share of g's variance that lines at the head's own frequencies explain",
        "lines_explained_resolved": "share of g's variance that those lines explain whose wavelength fits the offsets",
        "lines_random": "share of g's variance that random frequency sets of the same number and range explain, mean",
        "lines_p": "share of random frequency sets (add one) that explain as much as the head's own",
        "lines_rest": "share of g's variance that the lines explain and the amplitudes listed leave out",
        "line_directions": "combinations of level and lines told apart at the length, of 1 + 2 x lines; if fewer, only "
        "sums of neighbouring lines are known",
        "line_frequencies": "radians a position",
        "line_amplitudes": "nats; of lines that the length does not tell apart the least that make their sum",
        "line_phases": "radians",
        "line_resolved": "whether the wavelength fits into the offsets",
        "fourier_peak": "frequency with the most Fourier power, radians a position",
        "alignment": "share of the Fourier power within one resolution of the head's frequencies",
        "alignment_random": "share of the Fourier power within one resolution of random frequencies, mean over sets",
        "alignment_p": "share of random frequency sets (add one) with as much Fourier power near them",
        "spectrum_undefined": "why parts of the spectrum are null",
    },
    "probes": {
        "probe_correlation": "correlation of g on one repeated token with g on text, over pairs",
        "probe_gain": "slope of the text's g on that of one repeated token",
        "probe_agrees": "whether the correlation is at least 0.9 and the gain within a factor of 2",
        "toeplitz_error": "largest distance of the logits on one repeated token from a function of the offset, nats",
        "toeplitz_floor": "what rounding can make of that distance; rotary heads stay below",
        "induction": "attention after earlier occurrences of the row's token, on a repeated random pattern",
        "induction_chance": "what evenly spread attention puts after earlier occurrences",
        "matching": "attention on earlier occurrences of the row's token, on a repeated random pattern",
        "matching_chance": "what evenly spread attention puts on earlier occurrences",
    },
    "untrained": {
        "r2_untrained": "R2, unbiased and row-centred, of the same head with weights drawn anew",
        "signal_untrained": "standard deviation of g over pairs of the same head with weights drawn anew, nats",
        "share_untrained": "stationary share of logit variance of the same head with weights drawn anew",
    },
    "products": {
        "fit_CONTENT_FIT": "held-out R2 of the fit {FIT}; content kernel: {CONTENT}",
        "fit_CONTENT_product_over_sum": "held-out R2 of the product less that of the sum; content kernel: {CONTENT}",
        "fit_CONTENT_both_over_additive": "held-out R2 that the product adds to the additive form; content: {CONTENT}",
        "fit_CONTENT_saturated_over_free": "held-out R2 of joint bins less that of the free sum; content: {CONTENT}",
        "fit_CONTENT_origin": "origin c1 of the content kernel in the product; content kernel: {CONTENT}",
        "residual_FIT": "|residual| / |logits| on held-out row-centred logits of the fit {FIT}, with token content",
        "residual_FIT_rank": "effective rank of what the fit {FIT} leaves",
        "residual_FIT_rank_null": "effective rank of what the fit {FIT} leaves, with keys of another sequence",
        "residual_FIT_rank_excess": "effective rank less that with keys of another sequence, of the fit {FIT}: below 0 "
        "where content structures the residual",
    },
}
"""What every column means, by the measure that it comes from."""


def of_column(column: str, texts: Mapping[str, str]) -> str:
    """The label or meaning of a column, from a table by names; empty where no name of the table fits."""
    for name in sorted(texts, key=len, reverse=True):
        found = re.fullmatch(re.sub(r"[A-Z]{2,}", lambda word: f"(?P<{word[0]}>.+)", name), column)
        if found and all(value in PLACEHOLDERS[word] for word, value in found.groupdict().items()):
            return texts[name].format_map(
                {word: PLACEHOLDERS[word][value] for word, value in found.groupdict().items()}
            )
    return ""


def in_general(text: str) -> str:
    """A label or meaning with the names in capitals themselves, for a table of all columns."""
    return text.format_map({word: word for word in PLACEHOLDERS})
