"""Streams by seed and purpose: the same in every process, different for every pair."""

import torch

from poskernel.random_streams import random_stream


def test_streams_are_the_same_every_time_and_differ_between_seeds_and_purposes() -> None:
    pairs = [(seed, purpose) for seed in (0, 1, 10) for purpose in ("init", "data", "evaluation/30")]
    drawn = [torch.randint(2**40, (4,), generator=random_stream(*pair)).tolist() for pair in pairs]
    again = [torch.randint(2**40, (4,), generator=random_stream(*pair)).tolist() for pair in pairs]
    assert drawn == again
    assert len({tuple(each) for each in drawn}) == len(pairs)


def test_a_stream_is_what_it_was_when_the_committed_rows_were_made() -> None:
    assert random_stream(0, "data").initial_seed() == int.from_bytes(bytes.fromhex("1473caea611930a1"), "little")
