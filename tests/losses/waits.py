"""A counter of operations that would make the host wait for a device, for tests on the CPU."""

from collections import Counter
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = {
    "_local_scalar_dense",
    "_unique2",
    "bincount",
    "equal",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
}
"""Operators whose result, or whose result's shape, is needed on the host."""


class Waits(TorchDispatchMode):
    """A mode that counts, by name, reads of a tensor's values by the host, and indices by bool."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __enter__(self):
        names = ("tolist", "numpy", "cpu")
        self._stubs = [mock.patch.object(torch.Tensor, name, self._counted(name)) for name in names]
        for stub in self._stubs:
            stub.start()
        return super().__enter__()

    def __exit__(self, *problem):
        for stub in self._stubs:
            stub.stop()
        return super().__exit__(*problem)

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        name = operator.overloadpacket.__name__
        if name in READS:
            self.count[name] += 1
        if name in ("index", "index_put_", "_index_put_impl_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in arguments[1]
        ):
            self.count["index by bool"] += 1
        if name == "repeat_interleave" and "output_size" not in (options or {}):
            self.count[name] += 1
        return operator(*arguments, **(options or {}))

    def _counted(self, name):
        original = getattr(torch.Tensor, name)

        def call(tensor, *arguments, **options):
            self.count[name] += 1
            return original(tensor, *arguments, **options)

        return call
