"""Heads in parallel: each once, with a workspace of its own while it works, and errors come out."""

import threading

import pytest
import torch

from poskernel.attention.estimators.head_pool import HeadPool


def test_every_head_comes_once_and_no_workspace_is_shared():
    pool, seen, lock, busy = HeadPool(), [], threading.Lock(), set()

    def work(head, workspace):
        with lock:
            assert id(workspace) not in busy
            busy.add(id(workspace))
        assert torch.get_num_threads() == 1
        assert torch.is_inference_mode_enabled()
        seen.append(head)
        with lock:
            busy.remove(id(workspace))

    pool.each(20, work)
    pool.each(3, work)
    pool.close()
    assert sorted(seen) == sorted([*range(20), *range(3)])


def test_an_error_of_one_head_is_raised_and_its_workspace_comes_back():
    pool = HeadPool()

    def work(head, workspace):
        if head == 2:
            raise ValueError("head 2")

    for _ in range(5):
        with pytest.raises(ValueError, match="head 2"):
            pool.each(4, work)
    pool.close()
