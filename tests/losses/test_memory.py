"""Tests that the tiled engine makes no tensor of the size of all pairs."""

import pytest
import torch
from losses.oracles import CASES, PATH_LOSSES
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mlcl.losses import build_loss, tiling
from mlcl.testing.loss_batches import case_id

TILE = 40


class Largest(TorchDispatchMode):
    """A mode that records the most entries that the result of any operation has in memory."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        answer = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(answer):
            if isinstance(leaf, torch.Tensor):
                size = leaf.untyped_storage().nbytes() // leaf.element_size()
                self.entries = max(self.entries, size)
        return answer


def largest(loss, rows, name):
    z = rows.z.float().requires_grad_()
    with Largest() as mode:
        loss(z, rows.labels(name), rows.sample_ids()).backward()
    return mode.entries


@pytest.mark.parametrize(
    ("case", "several_paths"),
    [(case, False) for case in CASES] + [(case, True) for case in CASES if case[0] in PATH_LOSSES],
    ids=lambda value: case_id(value) if isinstance(value, tuple) else str(value),
)
def test_no_tensor_grows_with_the_pairs(case, several_paths, monkeypatch, make):
    """The largest tensor holds a few tiles of 40 rows or a few numbers per row, not the 102,400 pairs."""
    monkeypatch.setattr(tiling, "TILE", TILE)
    monkeypatch.setattr(tiling, "KEPT", 0)
    name, options = case
    rows = make(samples=160, dim=8, width=12, several_paths=several_paths)
    pairs = len(rows.z) ** 2
    assert largest(build_loss(name, engine="tiled", **options), rows, name) < pairs / 16


def test_the_definition_has_a_tensor_of_all_pairs(make):
    rows = make(samples=160, dim=8)
    assert largest(build_loss("supcon", engine="dense"), rows, "supcon") >= len(rows.z) ** 2
