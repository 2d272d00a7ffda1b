"""A simulated device for tests on the CPU, whose tensors have no values, so that reading one is an error."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("cuda", 0)


class Device(FakeTensorMode):
    """A mode in which tensors on DEVICE have no values, while those in the host's memory are real.

    Reading a device's tensor raises, and so does an operation that mixes both. `waits` lists the copies that
    would wait: those to the host, and those to the device that are not `non_blocking`.
    """

    def __init__(self):
        if torch.__version__.startswith("2.4."):
            pytest.skip("PyTorch 2.4 looks for a real device")
        super().__init__(allow_non_fake_inputs=True)
        self.waits = []

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        options = options or {}
        tensors = [leaf for leaf in tree_leaves((arguments, options)) if isinstance(leaf, torch.Tensor)]
        on_device = any(isinstance(leaf, FakeTensor) for leaf in tensors)
        target = torch.device(options.get("device") or "cpu").type
        if not on_device and target == "cpu":
            return operator(*arguments, **options)
        is_copy = operator is torch.ops.aten._to_copy.default and options.get("device") is not None
        if is_copy and (target == "cpu" or not (on_device or options.get("non_blocking"))):
            self.waits.append(f"copy to {target}")
        return super().__torch_dispatch__(operator, types, arguments, options)
