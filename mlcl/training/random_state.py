"""Random state that can be set, saved and restored, so that a resumed run repeats the same bits."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor


def seed_all(seed: int, rank: int = 0) -> None:
    """Seeds Python, NumPy and PyTorch. Ranks draw different streams of the same seed."""
    mixed = int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
    random.seed(mixed)
    np.random.seed(mixed)  # libraries use the global state
    torch.manual_seed(mixed)


def rng_state() -> dict[str, Tensor]:
    """The random states that the loop uses: PyTorch's on the CPU and on the current GPU."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_rng_state(state: dict[str, Tensor]) -> None:
    """Restores what `rng_state` gave."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
