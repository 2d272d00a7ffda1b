"""The inputs of a batch, which are read and copied to a GPU while it works on the batch before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from mlcl.labels import sent

Inputs = Mapping[str, Tensor]


def read_ahead(
    batches: Iterable[Tensor], read: Callable[[Tensor], Inputs], device: torch.device
) -> Iterator[tuple[Tensor, Inputs]]:
    """The indices (B,) of each batch, and what `read` gives for them, on the device.

    For a GPU a thread reads one batch ahead, and copies it from pinned memory on a stream of its own.
    """
    if device.type != "cuda":
        yield from ((indices_B, read(indices_B)) for indices_B in batches)
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def fetched(indices_B: Tensor) -> tuple[Inputs, torch.cuda.Event]:
        with torch.cuda.stream(stream):
            inputs = {name: sent(value, device) for name, value in read(indices_B).items()}
            return inputs, stream.record_event()

    def taken(indices_B: Tensor, coming: Future[tuple[Inputs, torch.cuda.Event]]) -> tuple[Tensor, Inputs]:
        inputs, copied = coming.result()
        current = torch.cuda.current_stream(device)
        current.wait_event(copied)
        for value in inputs.values():
            # Else its memory could be given to the next copy while work on this batch is under way.
            value.record_stream(current)
        return indices_B, inputs

    with ThreadPoolExecutor(1) as pool:
        last = None
        for indices_B in batches:
            coming = indices_B, pool.submit(fetched, indices_B)
            if last is not None:
                yield taken(*last)
            last = coming
        if last is not None:
            yield taken(*last)
