"""The linear layers of a grid of settings, as parts of one tensor, and their optimiser.

Shapes: B rows of a batch, b of these in this process, D features, H configurations, O outputs of a layer, X =
H * O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional


class ProbeLayers:
    """The layers of several settings: parts of one tensor, so that one product computes the logits of all.

    `weights` and `biases` have a tensor for each setting, `kept` the numbers of those that are trained.
    """

    def __init__(self, settings: int, outputs: int, dim: int, device: torch.device) -> None:
        self.kept = list(range(settings))
        self._weight_HOD = torch.zeros(settings, outputs, dim, device=device)
        self._bias_HO = torch.zeros(settings, outputs, device=device)
        self.weights, self.biases = list(self._weight_HOD), list(self._bias_HO)
        self._place()

    def _place(self) -> None:
        """Makes the tensors of the kept settings parts of the whole ones, and gives them gradients."""
        self._gradients = torch.zeros_like(self._weight_HOD), torch.zeros_like(self._bias_HO)
        for place, number in enumerate(self.kept):
            self.weights[number].data, self.biases[number].data = (
                self._weight_HOD[place],
                self._bias_HO[place],
            )
            self.weights[number].grad, self.biases[number].grad = (each[place] for each in self._gradients)

    def keep(self, numbers: Sequence[int]) -> None:
        """Trains these settings alone from now on; the optimiser leaves tensors without a gradient alone."""
        for number in set(self.kept) - set(numbers):
            # A copy, so that the whole tensor is freed.
            self.weights[number].data, self.weights[number].grad = self.weights[number].clone(), None
            self.biases[number].data, self.biases[number].grad = self.biases[number].clone(), None
        places = [self.kept.index(number) for number in numbers]
        self.kept = list(numbers)
        self._weight_HOD, self._bias_HO = self._weight_HOD[places], self._bias_HO[places]
        self._place()

    def logits(self, x: Tensor) -> Tensor:
        """Returns the logits (b, H, O) of the kept layers for features (b, D), or label vectors (b, O, D)."""
        if x.ndim == 3:
            return torch.einsum("bod,hod->bho", x, self._weight_HOD) + self._bias_HO
        logits_bX = functional.linear(x, self._weight_HOD.flatten(0, 1), self._bias_HO.flatten())
        return logits_bX.reshape(len(x), *self._bias_HO.shape)

    def clear(self) -> None:
        """Sets the gradients to 0."""
        for gradient in self._gradients:
            gradient.zero_()

    def add(self, x: Tensor, gradient_bHO: Tensor) -> None:
        """Adds the layers' gradients for features, from the gradient of their logits."""
        weight_HOD, bias_HO = self._gradients
        bias_HO += gradient_bHO.sum(0)
        if x.ndim == 3:
            weight_HOD += torch.einsum("bho,bod->hod", gradient_bHO, x)
        else:
            weight_HOD.flatten(0, 1).addmm_(gradient_bHO.flatten(1).T, x)

    def sum(self, total: Callable[[Tensor], Tensor]) -> None:
        """Sums the gradients over the processes."""
        for gradient in self._gradients:
            gradient.copy_(total(gradient))


def build_optimizer(
    pairs: Sequence[tuple[float, float]], weights: Sequence[Tensor], biases: Sequence[Tensor]
) -> torch.optim.AdamW:
    """Returns the AdamW of these pairs of learning rate and weight decay; biases have no weight decay."""
    groups = [
        {"params": [weight], "lr": lr, "weight_decay": decay}
        for weight, (lr, decay) in zip(weights, pairs, strict=True)
    ]
    for rate in sorted({lr for lr, _ in pairs}):
        same = [bias for bias, (lr, _) in zip(biases, pairs, strict=True) if lr == rate]
        groups.append({"params": same, "lr": rate, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, fused=True)
