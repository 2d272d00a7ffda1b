"""Measures training images per second of mlcl's loop and a plain one with torchvision and a peer's loss."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from gpu_points import Figures, Points, wait
from PIL import Image
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from mlcl.config import AugmentConfig
from mlcl.config.training_sections import TrainConfig
from mlcl.data import ImageRows
from mlcl.losses import build_loss
from mlcl.models import Projection
from mlcl.models.encoders.resnet import ResNet
from mlcl.samplers import EpochSampler
from mlcl.training.batches import Rows, memory_format
from mlcl.training.context import Context, deterministic
from mlcl.training.events import Event
from mlcl.training.loop import Loop
from mlcl.training.loop_settings import Callbacks
from mlcl.training.objective import ContrastiveModel, Head, Objective

BATCH, CLASSES, SIZE, ROWS = 2_048, 100, 32, 50_000
"""The samples in a batch (two views each), and the number of classes, size and number of generated images."""
EPOCHS = 3
"""Epochs of mlcl's loop; only the last one is measured."""
PLAIN_STEPS = 12
TAU = 0.1
WAYS: dict[str, dict[str, Any]] = {
    "mlcl": {},
    "mlcl, compiled": {"compiled": True},
    "mlcl, graphs": {"compiled": "graphs"},
    "mlcl, from the host's memory": {"resident": False},
    "mlcl, deterministic": {"same_bits": True},
}


def measure(points: Points) -> None:
    """Measures the views per second of mlcl's loop and of the plain one, for each network."""
    for name in ("resnet18",) if points.smoke else ("resnet18", "resnet50"):
        points.measure(f"{name} plain", partial(plain, name, points))
        for way, options in WAYS.items():
            if points.device.type == "cuda" or "compiled" not in options:
                points.measure(f"{name} {way}", partial(ours, name, points, **options))


def made(points: Points) -> tuple[Any, Tensor, int]:
    """Returns random images (N, 3, H, W) as uint8, their classes, and the number of samples in a batch."""
    rows, batch, size = (8, 4, 8) if points.smoke else (ROWS, BATCH, SIZE)
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (rows, 3, size, size), dtype=np.uint8)
    return pixels, torch.arange(rows) % CLASSES, batch


def ours(
    name: Any, points: Points, *, compiled: Any = False, resident: bool = True, same_bits: bool = False
) -> Figures:
    """Runs mlcl's training loop and returns the last epoch's rate and its share of waiting for data."""
    pixels, classes, batch = made(points)
    context = Context(points.device)
    encoder = ResNet(name)
    head = Head(
        Projection("mlp", encoder.dim, dim=128), build_loss("supcon", temperature=TAU, normalize=True), 1.0
    )
    model = ContrastiveModel(encoder, Objective({"class": head}, None)).to(context.device)
    model.encoder.to(memory_format=memory_format(context.device))
    samples = torch.arange(len(pixels))
    rows = Rows(ImageRows(pixels), {"class": classes}, samples, AugmentConfig(), bool(compiled))
    sampler = EpochSampler(len(pixels), batch, seed=0, drop_last=True)
    events: list[Event] = []
    loop = Loop(
        model=model,
        rows=rows.copy_to_gpu(context.device) if resident else rows,
        sampler=sampler,
        context=context,
        train=TrainConfig(
            epochs=EPOCHS,
            batch_size=batch,
            precision=points.precision,
            compile=compiled,
            optimizer="sgd",
            lr=0.5,
            weight_decay=1e-4,
            momentum=0.9,
            warmup=0.0,
        ),
        views=2,
        validate_every=EPOCHS,
        patience=None,
        callbacks=Callbacks(events.append, dict, lambda: False),
        checkpoint=None,
        identity={},
    )
    with deterministic(same_bits):
        loop.run()
    rates = [event.metrics for event in events if "train/rows_per_second" in event.metrics]
    last_rates = rates[-1]
    return {
        "views a second": last_rates["train/rows_per_second"],
        "share of waiting": last_rates["train/data_wait"],
    }


class Views(Dataset[tuple[Tensor, Tensor, int]]):
    """A data set of two augmented views of each image, which torchvision makes on the CPU."""

    def __init__(self, pixels: Any, classes: Tensor) -> None:
        from torchvision.transforms import v2

        self._pixels, self._classes = pixels.transpose(0, 2, 3, 1), classes
        self._transform = v2.Compose(
            [
                v2.RandomResizedCrop(pixels.shape[-1], scale=(0.2, 1)),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.4, 0.4, 0.4),
                v2.RandomGrayscale(0.2),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self) -> int:
        return len(self._pixels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor, int]:
        image = Image.fromarray(self._pixels[row])
        return self._transform(image), self._transform(image), int(self._classes[row])


def plain(name: str, points: Points) -> Figures:
    """Trains with a data loader of several processes, autocast and pytorch-metric-learning's `SupConLoss`."""
    from torchvision import models

    pixels, classes, batch = made(points)
    device = points.device
    encoder = getattr(models, name)(weights=None)
    dim = encoder.fc.in_features
    encoder.conv1, encoder.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    encoder.fc = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 128))
    encoder.to(device).train()
    loss, optimizer = SupConLoss(temperature=TAU), torch.optim.SGD(encoder.parameters(), lr=0.5, momentum=0.9)
    workers = 0 if points.smoke else min(16, os.cpu_count() or 1)
    loader = DataLoader(
        Views(pixels, classes),
        batch,
        shuffle=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    steps, start = 0, 0.0
    for first_views, second_views, targets in endless(loader):
        if steps == 2:  # the first steps start processes and choose kernels
            wait(device)
            start = time.perf_counter()
        images = torch.cat([first_views, second_views]).to(device, non_blocking=True)
        labels = targets.to(device, non_blocking=True).repeat(2)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=points.precision == "bf16"):
            z_RD = encoder(images)
        loss(z_RD.float(), labels).backward()
        optimizer.step()
        steps += 1
        if steps == (3 if points.smoke else PLAIN_STEPS):
            break
    wait(device)
    return {"views a second": 2 * batch * (steps - 2) / (time.perf_counter() - start), "workers": workers}


def endless(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yields the batches of the loader, epoch after epoch, without end."""
    while True:
        yield from loader
