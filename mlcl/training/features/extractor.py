"""Declares extractors; has the extractor of a data set's own vectors, and the inference of frozen networks.

Shapes: N rows, F columns.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from mlcl.models.encoders.features import ColumnInput
from mlcl.torch_versions import cpu_capabilities
from mlcl.training.checkpoint import unshare_tensors
from mlcl.training.precision import Precision, Work, faster_precision

T = TypeVar("T")
Matrix = Any
"""Rows (N, F) float32, as a NumPy array or a `scipy.sparse.csr_array` with sorted int32 indices."""
Contents = Any
"""The inputs of an extractor: a list of texts, images (N, 3, H, W) uint8, or vectors (N, F) float32."""
COLUMN_FILE = "column.json"
ROWS_AT_ONCE = 32
"""The number of rows of a batch; larger batches are not faster on a CPU."""


@dataclass(frozen=True)
class BatchRun:
    """Settings of the computation of a frozen network's batches.

    On a CPU, `threads` batches are computed at once, each by one thread alone, so that the numbers do not
    depend on `threads`; None leaves one batch after another to PyTorch's threads. `done` is called with the
    number of rows after each batch, in the caller's thread; its exception ends the computation.
    """

    threads: int | None = None
    done: Callable[[int], None] = lambda _rows: None


ONE_BY_ONE = BatchRun()


class Extractor(Protocol):
    """A fitted extractor, from contents to rows; training does not change it."""

    @property
    def columns(self) -> int:
        """The number of columns F."""
        ...

    def __call__(self, contents: Contents, run: BatchRun = ONE_BY_ONE, /) -> Matrix:
        """Returns the rows (N, F) of contents. A row does not depend on other contents, up to rounding.

        Only extractors with a network use `run`.
        """
        ...

    def save(self, folder: Path) -> None:
        """Writes the files that `Kind.load` reads into an existing folder, without pickles."""
        ...


@dataclass(frozen=True)
class Kind:
    """A kind of extractor, declared as a value at the end of a module of this package.

    Attributes:
        fit: Builds the extractor from an input's section, the contents of the training rows, which are None
            unless the kind `learns`, the device, and the precision in which a network may compute.
        load: Builds the extractor from a section, the folder that `Extractor.save` wrote, and the device.
        state: Returns, as plain data, what the outputs depend on besides section and rows. Raises UserError
            if a file is missing.
        learns: Whether the extractor is fitted to the training rows.
        cached: Whether its rows are kept on disk.
        network: Whether a network computes the rows in batches, which may take minutes.
    """

    fit: Callable[[Any, Contents | None, torch.device, Precision], Extractor]
    load: Callable[[Any, Path, torch.device], Extractor]
    state: Callable[[Any], object]
    learns: bool = False
    cached: bool = True
    network: bool = False


PRODUCT = (256, 384, 1536)
"""Rows, inputs and outputs of the layer that is timed in both precisions."""


def precision(device: torch.device, cache: Path) -> Precision:
    """Returns the precision in which frozen networks compute on a device.

    It is bf16 on a GPU that supports bf16, and on a CPU that supports bf16 and on which a layer is faster in
    bf16, which is measured once and kept in the cache; else float32.
    """
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    capabilities = cpu_capabilities()
    if not (capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")):
        return "float32"
    return faster_precision(cache, device, {"layer": PRODUCT}, _build_layer_work)


def _build_layer_work() -> Work:
    rows, inputs, columns = PRODUCT
    # The numbers are not drawn, so that the random state of the process stays unchanged.
    x, weight = torch.ones(rows, inputs), torch.ones(columns, inputs)

    def multiply(precision: Precision) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            nn.functional.linear(x, weight)

    return multiply


def outputs(
    network: nn.Module,
    batches: Iterable[tuple[NDArray[np.int64], dict[str, Tensor]]],
    shape: tuple[int, int],
    device: torch.device,
    precision: Precision,
    run: BatchRun,
) -> NDArray[np.float32]:
    """Computes a network's outputs (N, F), of the given `shape`.

    Each batch has the numbers of its rows in the result, and the network's inputs by name.
    """
    output_NF = np.empty(shape, dtype=np.float32)

    def compute(batch: tuple[NDArray[np.int64], dict[str, Tensor]]) -> int:
        rows, inputs = batch
        device_inputs = {name: value.to(device) for name, value in inputs.items()}
        # Both contexts apply to the current thread alone.
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            output_NF[rows] = network(**device_inputs).float().cpu().numpy()
        return len(rows)

    if run.threads is None or device.type != "cpu":
        for batch in batches:
            run.done(compute(batch))
    else:
        _run_in_threads(compute, batches, run.threads, run.done)
    return output_NF


def _run_in_threads(
    compute: Callable[[T], int], batches: Iterable[T], threads: int, on_done: Callable[[int], None]
) -> None:
    """Computes batches in `threads` threads, each on one CPU core; an error cancels the waiting batches."""
    previous_threads, futures = torch.get_num_threads(), deque[Future[int]]()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                for batch in batches:
                    futures.append(pool.submit(compute, batch))
                    if len(futures) > threads:
                        on_done(futures.popleft().result())
                while futures:
                    on_done(futures.popleft().result())
            finally:
                for future in futures:
                    future.cancel()
    finally:
        torch.set_num_threads(previous_threads)  # for threads that are created from now on


def freeze(network: nn.Module, device: torch.device) -> nn.Module:
    """Moves a network to the device, in evaluation mode and without gradients."""
    return network.to(device).eval().requires_grad_(requires_grad=False)


def save_weights(network: nn.Module, file: Path) -> None:
    """Writes all weights as safetensors."""
    save_file(unshare_tensors(network.state_dict()), file)


@dataclass(frozen=True)
class Column:
    """The extractor of a data set's own vectors (N, F): it returns them unchanged, and checks their size."""

    columns: int

    def __call__(self, contents: NDArray[np.float32], _: BatchRun = ONE_BY_ONE) -> NDArray[np.float32]:
        """Returns the vectors. Raises ValueError if their size is not that of the training rows' vectors."""
        if contents.shape[1] != self.columns:
            raise ValueError(f"vectors of {contents.shape[1]} numbers, not {self.columns}")
        return np.ascontiguousarray(contents, dtype=np.float32)

    def save(self, folder: Path) -> None:
        """Writes the size of the vectors."""
        (folder / COLUMN_FILE).write_text(json.dumps({"columns": self.columns}))


def _fit_column(_: ColumnInput, contents: Any, __: torch.device, ___: Precision) -> Column:
    return Column(contents.shape[1])


def _load_column(_: ColumnInput, folder: Path, __: torch.device) -> Column:
    return Column(int(json.loads((folder / COLUMN_FILE).read_text())["columns"]))


COLUMN = Kind(_fit_column, _load_column, lambda _: None, learns=True, cached=False)
