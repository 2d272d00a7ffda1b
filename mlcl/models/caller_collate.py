"""The collate function of a caller: it computes the tensors that an encoder's forward takes.

Shapes: B rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from PIL import Image
from torch import Tensor

from mlcl.errors import UserError
from mlcl.models.encoder import Reads

KEY = "collate"
SIDE = 64
"""The side in pixels of the images of the example."""
NO_TENSORS = "does not return a mapping of names to tensors"
ALLOWED = "a mapping of names to tensors on the CPU, each with one row for each text or image"


class CallerCollate:
    """Calls a collate function of texts, or of images of Pillow in RGB, and checks what it returns.

    `opened` returns the function; it is called at the first use, since a pickle may hold the function.
    """

    def __init__(self, reads: Reads, opened: Callable[[], Any]) -> None:
        self._reads, self._open_function = reads, opened

    @cached_property
    def function(self) -> Callable[[list[Any]], Any]:
        """The function itself."""
        function: Callable[[list[Any]], Any] = self._open_function()
        return function

    @cached_property
    def example(self) -> dict[str, Tensor]:
        """The batch of two texts or two gray images; all batches must have tensors of its names and types."""
        return self._check_batch(self._example_contents)

    def check(self) -> None:
        """Raises UserError if batches of one and of two examples are wrong, or differ in names or types."""
        self(self._example_contents[:1])

    @property
    def _example_contents(self) -> list[Any]:
        if self._reads == "text":
            return ["a text", "another text, which is longer"]
        return [Image.new("RGB", (SIDE, SIDE), "gray") for _ in range(2)]

    def __call__(self, contents: list[Any]) -> dict[str, Tensor]:
        """Returns the tensors (B, ...) of a batch by name.

        Raises UserError if the function fails, or returns other names or types than for `example`.
        """
        expected = _dtype_names(self.example)
        tensors = self._check_batch(contents)
        if _dtype_names(tensors) != expected:
            problem = f"returns other names or types for {len(contents)} rows than for two examples"
            raise UserError(problem, key=KEY, found=_dtype_names(tensors), allowed=expected)
        return tensors

    def _check_batch(self, contents: list[Any]) -> dict[str, Tensor]:
        function, rows = self.function, len(contents)
        try:
            batch = function(contents)
        except Exception as error:  # foreign code may raise anything
            detail = f"{type(error).__name__}: {error}"
            raise UserError(f"fails with {rows} rows", key=KEY, found=detail, allowed=ALLOWED) from error
        if not isinstance(batch, Mapping) or not batch:
            detail = repr(batch) if isinstance(batch, Mapping) else type(batch).__name__
            raise UserError(NO_TENSORS, key=KEY, found=detail, allowed=ALLOWED)
        for name, tensor in batch.items():
            if not isinstance(name, str) or not isinstance(tensor, Tensor):
                problem, detail = NO_TENSORS, f"{name!r}: {type(tensor).__name__}"
            elif tensor.shape[:1] != (rows,) or tensor.device.type != "cpu":
                problem = f"returns a tensor of no {rows} rows"
                detail = f"{name} {(*tensor.shape,)} on {tensor.device}"
            else:
                continue
            raise UserError(problem, key=KEY, found=detail, allowed=ALLOWED)
        return dict(batch)


def _dtype_names(batch: Mapping[str, Tensor]) -> dict[str, str]:
    return {name: str(batch[name].dtype).removeprefix("torch.") for name in sorted(batch)}
