"""Measures whether bfloat16 is faster than float32 on this machine; a home's cache keeps the times."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from mlcl.data.cache_entries import read_cached
from mlcl.torch_versions import cpu_capabilities

Precision = Literal["float32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16")
Work = Callable[[Precision], object]
"""A function that is timed; it does equal work in the given precision."""
FOLDER = "precision"
WORTH = 0.9
"""bfloat16, which is less exact, is chosen if its time is at most this share of the time in float32."""
ENOUGH = 5.0
"""Seconds after which the work is not repeated any more, once it has been done twice in both precisions."""
MOST = 10
"""The largest number of repetitions."""


def faster_precision(
    cache: Path, device: torch.device, description: Mapping[str, Any], prepare: Callable[[], Work]
) -> Precision:
    """Returns bf16 if work in bf16 takes at most `WORTH` of float32's time on this machine, else float32.

    `cache` is the cache of a home, which keeps the times by machine, `device` and `description`, plain data
    that describes the work. `prepare` returns the work; it is called only if its times are not known yet.
    Raises UserError if the cache cannot be written.
    """
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    processor = [platform.machine(), cpu_capabilities()]
    key = {"machine": {"gpu": gpu, "processor": processor, "torch": torch.__version__}, **description}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]

    def write(path: Path) -> None:
        path.write_text(json.dumps({**key, "seconds": _time_precisions(device, prepare())}, indent=1) + "\n")

    def read(path: Path) -> Precision:
        seconds = json.loads(path.read_text(encoding="utf-8"))["seconds"]
        return "bf16" if seconds["bf16"] <= WORTH * seconds["float32"] else "float32"

    return read_cached(cache / FOLDER / f"{digest}.json", write, read)


def _time_precisions(device: torch.device, work: Work) -> dict[Precision, float]:
    """Returns the least seconds that the work takes in each precision; the precisions alternate."""
    least_seconds, loop_start = dict.fromkeys(PRECISIONS, math.inf), time.perf_counter()
    for repeats in range(MOST):
        if repeats > 1 and time.perf_counter() - loop_start > ENOUGH:
            break
        for precision in PRECISIONS:
            start = time.perf_counter()
            work(precision)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            least_seconds[precision] = min(least_seconds[precision], time.perf_counter() - start)
    return least_seconds
