"""Random numbers by (seed, purpose), never by what they are used on: conditions with one seed share their data."""

import hashlib

import torch


def random_stream(seed: int, purpose: str) -> torch.Generator:
    """The random numbers of one purpose (init, data, evaluation), independent of what they are used on."""
    digest = hashlib.sha256(f"{int(seed)}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))
