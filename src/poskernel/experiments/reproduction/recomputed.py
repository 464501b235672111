"""Alphas worked out twice from the paper's definitions, independently of this package, beside those of the rows."""

from poskernel.experiments.reproduction.measures import alpha, mean_alpha, predicted
from poskernel.experiments.reproduction.verdicts import Headline, Kind
from poskernel.study.studies import STUDY_LENGTHS

RECOMPUTED = "worked out from the definitions"
VALUES: tuple[Headline, ...] = (
    *(
        predicted(("rope", "first"), value, RECOMPUTED, length)
        for length, value in ((30, 0.80), (40, 0.40), (60, 0.20))
    ),
    *(predicted(("sinusoidal", "prev"), value, RECOMPUTED, length) for length, value in ((40, 0.50), (60, 0.45))),
    Headline(
        "mean alpha of rope first over lengths",
        0.36,
        RECOMPUTED,
        Kind.ALPHA,
        mean_alpha("rope", "first"),
        "paper",
    ),
    *(
        Headline(
            f"mean alpha of learned {task} over lengths",
            0.05,
            RECOMPUTED,
            Kind.ALPHA,
            mean_alpha("learned", task),
            "paper",
        )
        for task in ("copy", "reverse")
    ),
    *(
        Headline(
            f"alpha of {encoding} {task}, length {length}, rule {rule}",
            value,
            RECOMPUTED,
            Kind.ALPHA,
            alpha(encoding, task, length, rule),
            "rules",
            places=3,
        )
        for encoding, task, rule, values in (
            ("sinusoidal", "prev", "adam", (0.10, 0.50, 0.367, 0.45, 0.383)),
            ("sinusoidal", "prev", "optimum", (1, 1, 1, 1, 0.85)),
            ("sinusoidal", "prev", "max-margin", (1, 1, 1, 1, 0.917)),
            ("rope", "first", "adam", (0.80, 0.40, 0.267, 0.20, 0.133)),
            ("rope", "first", "optimum", (0.30, 0.15, 0.10, 0.075, 0.05)),
            ("rope", "first", "max-margin", (0.40, 0.20, 0.133, 0.10, 0.067)),
        )
        for length, value in zip(STUDY_LENGTHS, values, strict=True)
    ),
    *(
        Headline(
            f"alpha of sinusoidal prev, length 60, adam at {steps} steps",
            value,
            RECOMPUTED,
            Kind.ALPHA,
            alpha("sinusoidal", "prev", 60, f"adam:steps={steps}"),
            "rules",
            places=3,
        )
        for steps, value in ((1000, 0.725), (1500, 1.0))
    ),
    *(
        predicted((f"rope:scale={scale}", "skip3"), value, RECOMPUTED, study="rope-scale")
        for scale, value in (("0.5", 1), ("0.3", 1), ("0.1", 1), ("0.05", 0), ("0.03", 0), ("0.01", 0))
    ),
    Headline(
        "alpha of rope first, length 60, rule min-norm",
        1.0,
        RECOMPUTED,
        Kind.ALPHA,
        alpha("rope", "first", 60, "min-norm"),
        "rules",
    ),
)
