"""The rank and the device of a process, and the collective operations of training and evaluation."""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mlcl.errors import UserError
from mlcl.grad_cache import rng_state, set_rng_state
from mlcl.losses.batch import gathers_on_host


@dataclass(frozen=True)
class Context:
    """The rank, the world size and the device of a process. With world size 1 nothing is communicated."""

    device: torch.device
    rank: int = 0
    world_size: int = 1

    @classmethod
    def current(cls, device: str = "auto", *, gpu_booked: bool = False) -> Context:
        """Reads rank and world size from torch.distributed, if initialised; see `pick_device`."""
        distributed = dist.is_available() and dist.is_initialized()
        ranks = (dist.get_rank(), dist.get_world_size()) if distributed else ()
        return cls(pick_device(device, gpu_booked=gpu_booked), *ranks)

    @property
    def is_main(self) -> bool:
        """Whether this rank writes files and logs."""
        return self.rank == 0

    @property
    def _exchange_device(self) -> torch.device:
        """The device for exchanging Python numbers: the CPU if the backend supports it, else `device`."""
        return torch.device("cpu") if gathers_on_host(None) else self.device

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank. Every rank must call this."""
        if self.world_size == 1:
            return flag
        flag_1 = torch.tensor([float(flag)], device=self._exchange_device)
        dist.all_reduce(flag_1, op=dist.ReduceOp.MAX)
        return bool(flag_1.item())

    def mean(self, values: Sequence[float]) -> list[float]:
        """Returns the mean over ranks of each value."""
        if self.world_size == 1:
            return list(values)
        values_N = torch.tensor(values, dtype=torch.float64, device=self._exchange_device)
        dist.all_reduce(values_N)
        return [float(value) for value in (values_N / self.world_size).tolist()]

    def sum(self, value: Tensor) -> Tensor:
        """Returns the sum over ranks of a tensor, without gradient; equal on every rank, bit by bit."""
        if self.world_size == 1:
            return value
        total = value.detach().to(self.device, copy=True)
        dist.all_reduce(total)
        return total.to(value.device)

    def copy_from_main(self, tensors: Iterable[Tensor]) -> None:
        """Copies rank 0's values into the tensors, in place. Every rank must call this."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def rows(self, local_rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Returns the `local_rows` of all ranks, in rank order, on every rank; rank r passes `counts[r]`."""
        if self.world_size == 1:
            return local_rows
        all_rows = local_rows.new_empty(sum(counts), *local_rows.shape[1:])
        for rank, part in enumerate(torch.split(all_rows, list(counts))):
            buffer = (local_rows if rank == self.rank else part).to(self.device).contiguous()
            if counts[rank]:
                dist.broadcast(buffer, rank)
            part.copy_(buffer)
        return all_rows

    def objects(self, value: Any) -> list[Any]:
        """Returns the picklable values that all ranks passed, in the order of ranks."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def autocast(self, precision: str) -> contextlib.AbstractContextManager[Any]:
        """Returns a context manager: for `bf16` autocast on this device, for `float32` one without effect."""
        if precision == "float32":
            return contextlib.nullcontext()
        assert precision == "bf16", precision  # `auto` is decided before a training
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


_training_lock = threading.RLock()


@contextlib.contextmanager
def own_process_state(threads: int | None) -> Iterator[None]:
    """A context in which a training may seed all random numbers, and PyTorch and Faiss use `threads` threads.

    PyTorch computes gradients, in float32 and without autocast, also where the caller has changed this. At
    the end the caller's random states and numbers of threads are restored. Trainings in several threads of a
    process run one after another, because they share this state.
    """
    with _training_lock:
        python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), rng_state()
        try:
            with _limit_threads(threads), _reset_modes():
                yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
            set_rng_state(torch_state)


@contextlib.contextmanager
def _reset_modes() -> Iterator[None]:
    """Sets PyTorch's default type, gradients and autocast as in a new process; its end restores them."""
    default_dtype = torch.get_default_dtype()
    with torch.inference_mode(False), torch.enable_grad(), _disable_autocast():
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(default_dtype)


@contextlib.contextmanager
def _disable_autocast() -> Iterator[None]:
    """Turns the caller's autocast off.

    It nests no `torch.autocast` around the training, since PyTorch keeps cast weights until the outermost one
    ends, and the training would compute with old weights. Within one of the caller, no cast weights are kept.
    """
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    enabled = [torch.is_autocast_enabled(device) for device in devices]
    cache = torch.is_autocast_cache_enabled()
    nested = torch.autocast_increment_nesting() > 1
    torch.autocast_decrement_nesting()
    try:
        for device in devices:
            torch.set_autocast_enabled(device, False)
        torch.set_autocast_cache_enabled(cache and not nested)
        yield
    finally:
        for device, was_enabled in zip(devices, enabled, strict=True):
            torch.set_autocast_enabled(device, was_enabled)
        torch.set_autocast_cache_enabled(cache)


@contextlib.contextmanager
def _limit_threads(number: int | None) -> Iterator[None]:
    if number is None:
        yield
        return
    import faiss

    thread_counts = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(number)
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(thread_counts[0])
        faiss.omp_set_num_threads(thread_counts[1])


@contextlib.contextmanager
def deterministic(enabled: bool) -> Iterator[None]:
    """Makes PyTorch compute the same bits every time, on a GPU as well, within the context if `enabled`.

    An operation without a deterministic version raises RuntimeError.
    """
    if not enabled:
        yield
        return
    # cuBLAS reads this at the first product on a GPU.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    cudnn: Any = torch.backends.cudnn
    flags = torch.are_deterministic_algorithms_enabled(), cudnn.deterministic, cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(flags[0])
        cudnn.deterministic, cudnn.benchmark = flags[1:]


ONE_PROCESS = Context(torch.device("cpu"))
"""The context of a single process on the CPU."""


def pick_device(name: str, *, gpu_booked: bool = False) -> torch.device:
    """Returns the device that the name stands for: `auto`, `cpu` or `cuda`.

    `auto` is a GPU if there is one, else the CPU. `gpu_booked` says that a part of a GPU is reserved for this
    process. Raises UserError if no GPU is visible for `cuda`, or for `auto` with `gpu_booked`; and, unless
    `name` is `cpu`, for a GPU that PyTorch cannot use.
    """
    if torch.cuda.is_available():
        device = "cuda" if name == "auto" else name
        return torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device(device)
    if name != "cpu" and (reason := unusable_gpu()):
        problem = "PyTorch cannot use the GPU of this machine"
        allowed = "train.device=cpu, a newer driver, or a PyTorch for this one"
        raise UserError(problem, key="train.device", found=reason, allowed=allowed)
    if name == "cuda" or (name == "auto" and gpu_booked):
        allowed = "auto, cpu" if name == "cuda" else "cpu, with --gpus 0"
        raise UserError("no GPU is visible", key="train.device", found=name, allowed=allowed)
    return torch.device("cpu" if name == "auto" else name)


DRIVER = Path("/proc/driver/nvidia/version")
DEVICES = Path("/dev")


def unusable_gpu() -> str:
    """Describes the driver of a GPU that PyTorch for CUDA cannot use.

    Returns an empty string if PyTorch can use it, if there is no GPU or CUDA_VISIBLE_DEVICES hides it, and
    for a PyTorch without CUDA.
    """
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if torch.version.cuda is None or hidden or torch.cuda.is_available() or not DRIVER.is_file():
        return ""
    if not any(DEVICES.glob("nvidia[0-9]*")):  # a container without the GPU sees the driver of its host
        return ""
    driver = driver_version() or "of an unknown version"
    return f"driver {driver}, PyTorch {torch.__version__} for CUDA {torch.version.cuda}"


def driver_version() -> str:
    """Returns the version of NVIDIA's driver; an empty string without a driver."""
    version = re.search(r"\d+\.\d+(\.\d+)?", DRIVER.read_text()) if DRIVER.is_file() else None
    return version.group() if version else ""
