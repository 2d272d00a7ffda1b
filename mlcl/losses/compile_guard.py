"""Leaving a function out of `torch.compile`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def uncompiled(function: Callable[P, T]) -> Callable[P, T]:
    """Runs the function as it is within a compiled model, which cannot trace the engine's use of buffers.

    `torch.compiler.disable` as a decorator would do, but would import the compiler with the losses.
    """

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> T:
        if not torch.compiler.is_compiling():
            return function(*arguments, **options)
        answer: T = torch.compiler.disable(function)(*arguments, **options)  # type: ignore[no-untyped-call]
        return answer

    return call
