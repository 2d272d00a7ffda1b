"""The weights that training may change, which are those in checkpoints and models on disk.

Frozen weights come from the pretrained model that the job names, so a checkpoint of an adapter is small.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn


def trained_weights(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module without its frozen parameters; the tensors themselves, not copies."""
    frozen = _frozen(module)
    return {name: value.detach() for name, value in module.state_dict().items() if name not in frozen}


def load_trained_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Sets what `trained_weights` gave. Raises RuntimeError for names or shapes of another module."""
    missing, unexpected = module.load_state_dict(weights, strict=False)
    wrong = sorted({*missing} - _frozen(module)) + sorted(unexpected)
    if wrong:
        raise RuntimeError(f"weights of another model: {', '.join(wrong[:5])}")


def _frozen(module: nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
