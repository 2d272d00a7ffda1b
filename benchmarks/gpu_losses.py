"""Measures the losses on a GPU by their arithmetic, beside the two products that every exact loss needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from gpu_points import Figures, Points, seconds_of
from losses_scenes import TEMPERATURE, Case, Scene, scene
from torch import Tensor

from mlcl.losses import LOSSES, build_loss, tiling
from mlcl.losses.similarities import matmul_precision

DIM, LABELS = 128, 80
SIZES = [4_096, 32_768, 131_072]
LARGEST = 1_048_576
"""The number of rows that is measured in bf16 alone, because a pass in float32 takes 15 seconds."""
COMPARED = 8_192
"""The largest number of rows for which the error against float64 is measured."""
TILES = [1_024, 2_048, 4_096, 8_192]
SWEPT = 32_768
PAIRS_AT_ONCE = 1 << 28


def measure(points: Points) -> None:
    """Measures times by tile size, then times, memory and errors by loss, number of rows and arithmetic."""
    sizes, tiles = ([512], [64, 128]) if points.smoke else ([COMPARED, *SIZES], TILES)
    swept_rows = 512 if points.smoke else SWEPT
    for tile in tiles:
        points.measure(
            f"supcon exact B={swept_rows} tile={tile}",
            lambda t=tile: loss("supcon", "exact", swept_rows, points, t),
        )
    for rows in sizes:
        for name in ("supcon", "simdis"):
            for products in ("exact", "tf32", "bf16"):
                points.measure(
                    f"{name} {products} B={rows}", lambda n=name, p=products, b=rows: loss(n, p, b, points)
                )
    if not points.smoke:
        for name in ("supcon", "simdis"):
            points.measure(f"{name} bf16 B={LARGEST}", lambda n=name: loss(n, "bf16", LARGEST, points))


def loss(name: str, products: Any, rows: int, points: Points, tile: int | None = None) -> Figures:
    """Returns the figures of one loss; `tile` replaces the engine's own tile size."""
    device, default_tile = points.device, tiling.DEVICE_TILE
    inputs = scene(Case(name, LOSSES[name].labels, rows, LABELS, DIM))
    z_BD = inputs.embeddings.detach().to(device)
    run = one_pass(name, products, z_BD, inputs)
    tiling.DEVICE_TILE = default_tile if tile is None else tile
    try:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
        run()
        peak = torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else 0
        seconds = seconds_of(run, device, 0.01 if points.smoke else 2.0)
    finally:
        tiling.DEVICE_TILE = default_tile
    limit = seconds_of(lambda: two_products(z_BD, products), device, 0.01 if points.smoke else 2.0)
    device_seconds = busy_seconds(run) if device.type == "cuda" else seconds
    figures: Figures = {
        "ms": 1_000 * seconds,
        "ms of the GPU": 1_000 * device_seconds,
        "GPU's times the two products": device_seconds / limit,
        "TFLOP/s": 4 * rows**2 * DIM / seconds / 1e12,
        "MiB": peak / 2**20,
    }
    if rows <= COMPARED:
        figures |= errors(run(), one_pass(name, "exact", z_BD.double(), inputs)())
    return figures


def busy_seconds(run: Callable[[], object], calls: int = 5) -> float:
    """Returns the seconds of a call in which the GPU computes, without the host's preparation of labels."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(calls):
            run()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profile.key_averages()) / calls / 1e6


def one_pass(name: str, products: Any, z_BD: Tensor, inputs: Scene) -> Callable[[], tuple[Tensor, Tensor]]:
    """Returns a function that runs forward and backward, with labels on the host.

    A call of the function returns value and gradient.
    """
    options = {} if products == "bf16" else {"products": products}
    module = build_loss(name, temperature=TEMPERATURE, normalize=True, engine="tiled", **options).to(
        z_BD.device
    )
    z_BD = (z_BD.bfloat16() if products == "bf16" else z_BD.clone()).requires_grad_()

    def run() -> tuple[Tensor, Tensor]:
        z_BD.grad = None
        value = module(z_BD, inputs.labels, inputs.sample_ids)
        value.backward()
        assert z_BD.grad is not None
        return value.detach(), z_BD.grad

    return run


def errors(result: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> Figures:
    """Returns the relative error of the value, and that of the gradient in norm."""
    pairs = [
        (tensor.double().cpu(), exact_tensor.cpu())
        for tensor, exact_tensor in zip(result, exact, strict=True)
    ]
    value, gradient = (
        float((tensor - exact_tensor).norm() / exact_tensor.norm()) for tensor, exact_tensor in pairs
    )
    return {"error of the value": value, "of the gradient": gradient}


def two_products(z_BD: Tensor, products: Any) -> None:
    """Computes S = Z Z^T and G = S Z, some rows at a time, in the arithmetic of the loss."""
    z_BD, native = F.normalize(z_BD, dim=1), products == "bf16" and z_BD.is_cuda
    half_BD = z_BD.bfloat16() if native else z_BD
    with matmul_precision(products, z_BD.device):
        for rows in half_BD.split(max(256, PAIRS_AT_ONCE // len(z_BD))):
            if native:
                s_NB = torch.mm(rows, half_BD.T)
                torch.mm(s_NB, half_BD, out_dtype=torch.float32)
            else:
                torch.mm(torch.mm(rows, half_BD.T), half_BD)
