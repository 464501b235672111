"""What a Hugging Face module and its config say of their positions and of tokens with a meaning."""

from typing import Any

from torch import nn

from poskernel.errors import InputError


def position_limit(config: Any, table: int | None) -> int | None:
    """Positions that the model was built for; None where neither its config nor a learned table sets a limit."""
    names = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
    said = next((int(getattr(config, name)) for name in names if getattr(config, name, None)), None)
    return min((limit for limit in (said, table) if limit is not None), default=None)


def rotary(config: Any) -> bool:
    """Whether a config speaks of rotary positions."""
    names = ("rope_parameters", "rope_theta", "rope_scaling", "rotary_dim", "rotary_pct", "rotary_emb_base")
    if getattr(config, "position_embedding_type", None) == "rotary":
        return True
    return any(getattr(config, name, None) for name in names)


def require_positions(model: str, length: int, limit: int | None, rotates: bool) -> None:
    """InputError for a length that a model with positions up to `limit` has none for."""
    if limit is not None and length > limit:
        beyond = " (kernels of its rotary heads beyond that: `poskernel extend`)" if rotates else ""
        raise InputError(
            f"length {length} is beyond the {limit} positions of '{model}': take a length of {limit} or less{beyond}."
        )


def position_table(module: nn.Module) -> int | None:
    """Rows that tokens can have in a learned table of positions; None without one."""
    for name, part in module.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(part, nn.Embedding) and last in ("position_embeddings", "embed_positions", "wpe"):
            # RoBERTa's table starts with the padding's rows, which no token can have; OPT's and BART's with two others.
            first = getattr(part, "offset", 0) if part.padding_idx is None else part.padding_idx + 1
            return part.num_embeddings - first
    return None


def special_tokens(config: Any) -> set[int]:
    """Ids that a config, or one within it, gives a meaning to: begin, end, padding, mask, places of images."""
    found: set[int] = set()
    for name, value in config.items():
        if isinstance(value, dict):
            found |= special_tokens(value)
        elif isinstance(name, str) and name.endswith(("token_id", "token_index")):
            found |= {part for part in (value if isinstance(value, list) else [value]) if isinstance(part, int)}
    return found
