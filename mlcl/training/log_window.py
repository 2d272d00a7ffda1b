"""The sums of an open logging window: on the device until they are read, so that no step waits for it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class LogWindow:
    """Adds scalars up, in float64, to sums by name that a caller keeps."""

    def __init__(self) -> None:
        self._sums: Tensor | None = None
        self._names: list[str] = []

    def add(self, kept: dict[str, float], values: Mapping[str, Tensor]) -> None:
        """Adds a step's values, of one device, to what `kept` has under their names."""
        if self._sums is None:
            self._names = list(values)
            start = [kept.get(name, 0.0) for name in self._names]
            self._sums = torch.tensor(start, dtype=torch.float64, device=values[self._names[0]].device)
        self._sums += torch.stack([values[name].detach().double() for name in self._names])

    def read(self, kept: dict[str, float]) -> None:
        """Writes the sums to `kept`, in one transfer, and starts anew."""
        if self._sums is not None:
            kept.update(zip(self._names, self._sums.tolist(), strict=True))
            self._sums = None
