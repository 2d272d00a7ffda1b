from dataclasses import dataclass

import pytest
import torch
from losses.oracles import PATH_LOSSES

from mlcl.labels import LabelRows
from mlcl.losses import tiling

PATHS = [(-1, -1, -1), (0, 0, -1), (0, 0, 0), (0, 0, 0), (0, 1, 2), (1, 2, 3), (1, -1, -1)]
"""Unknown from the root, from the middle and at the end; two of them are equal."""


@dataclass(frozen=True)
class Rows:
    """A batch of two views a sample: what torch takes, and the same for the oracles."""

    z: torch.Tensor
    sets: list[frozenset[int]]
    classes: list[int]
    ratings: list[list[int]]
    paths: list[tuple[int, ...]]
    samples: list[int]
    width: int

    def labels(self, name):
        """What the loss takes."""
        return {
            "simclr": None,
            "supcon": torch.tensor(self.classes),
            "jaccard": torch.tensor(self.ratings, dtype=torch.float32),
            **dict.fromkeys(PATH_LOSSES, torch.tensor(self.paths)),
        }.get(name, LabelRows.from_lists([sorted(s) for s in self.sets], self.width))

    def sample_ids(self):
        return torch.tensor(self.samples)

    def plain(self, name):
        """What the oracle takes."""
        return {
            "simclr": self.samples,
            "supcon": self.classes,
            "jaccard": self.ratings,
            **dict.fromkeys(PATH_LOSSES, self.paths),
        }.get(name, self.sets)


def make_rows(samples=7, views=2, dim=5, width=6, seed=0):
    """Random rows; sample 0 has no labels, sample 1 labels that nobody else has."""
    g = torch.Generator().manual_seed(seed)
    sets = [frozenset(torch.randperm(width - 1, generator=g)[: 1 + n % 3].tolist()) for n in range(samples)]
    sets[0], sets[1] = frozenset(), frozenset({width - 1})
    classes = [-1, *torch.randint(0, 3, (samples - 1,), generator=g).tolist()]
    ratings = torch.randint(0, 4, (samples, 4), generator=g).tolist()
    ratings[0] = [0, 0, 0, 0]
    order = torch.arange(samples).repeat(views).tolist()
    z = torch.randn(samples * views, dim, dtype=torch.float64, generator=g)
    return Rows(
        z,
        [sets[n] for n in order],
        [classes[n] for n in order],
        [ratings[n] for n in order],
        [PATHS[n % len(PATHS)] for n in order],
        order,
        width,
    )


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of four rows, so that a small batch has inner, outer and ragged ones."""
    monkeypatch.setattr(tiling, "TILE", 4)
    monkeypatch.setattr(tiling, "DEVICE_TILE", 4)


@pytest.fixture
def rows():
    return make_rows()


@pytest.fixture
def make():
    return make_rows


@pytest.fixture(scope="module")
def module_rows():
    return make_rows()
