"""Checks that the saved weights of a caller's module hold everything that training changes."""

from __future__ import annotations

import torch
from torch import Tensor

from mlcl.errors import UserError
from mlcl.models.caller_module import KEY, CallerModule, check_tensors


def check_state(encoder: CallerModule) -> None:
    """Raises UserError if a forward in training changes outputs by what the saved weights do not hold.

    These are plain attributes, buffers that are not persistent or whose shape changes, and parameters without
    gradient: an exported model would lack their values. Inputs are random, and the module is left changed.
    """
    module, name = encoder.module, type(encoder.module).__name__
    state = module.state_dict(keep_vars=True)
    check_tensors(state)
    fixed = {key for key, tensor in module.named_parameters() if not tensor.requires_grad}
    saved_state = {key: tensor.detach().clone() for key, tensor in state.items() if key not in fixed}
    rows = {
        key: torch.rand_like(tensor) if tensor.is_floating_point() else tensor
        for key, tensor in encoder.example.items()
    }

    def compute_output() -> Tensor:
        with torch.random.fork_rng(devices=()):
            torch.default_generator.manual_seed(0)
            output: Tensor = encoder.eval()(**rows)
        return output

    with torch.no_grad():
        old_output = compute_output()
        if not torch.equal(old_output, compute_output()):  # random in a way that no seed of PyTorch fixes
            return
        try:
            encoder.train()(**rows)
        except Exception:  # foreign code may raise anything; it may need more than two rows
            return
        try:
            module.load_state_dict(saved_state, strict=False)
            unchanged = torch.equal(old_output, compute_output())
        except RuntimeError:  # another shape
            unchanged = False
    if not unchanged:
        problem = f"training changes what the saved weights of {name} do not hold"
        allowed = "buffers that are persistent and keep their shape"
        raise UserError(problem, key=KEY, found="other outputs with the same weights", allowed=allowed)
