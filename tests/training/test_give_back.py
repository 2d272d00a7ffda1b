"""Memory that a process gives back to the system between two trainings."""

import ctypes

import psutil
import pytest

from mlcl.training.grad_cache import give_back


def resident() -> int:
    return psutil.Process().memory_info().rss


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library than glibc")
def test_a_heap_full_of_holes_is_given_back():
    # Pieces that malloc keeps in its heap, and between them some that live on.
    pieces = [bytearray(100_000) for _ in range(4_000)]
    kept = pieces[::100]
    del pieces
    before = resident()
    give_back()
    assert before - resident() > 200_000_000
    assert len(kept) == 40
