"""Measures whole trainings on a GPU: several at once, the encoder `features`, and a resumed one of images."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import features
from gpu_points import Figures, Points

from mlcl.config import load_job
from mlcl.data import Dataset, prepare
from mlcl.training.context import Context
from mlcl.training.events import Event, Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

TOGETHER = (1, 2, 4, 8)
TRAININGS = 3
"""The measured trainings of each process, after one that warms it up."""
JOB = Path(__file__).parent.parent / "jobs" / "cifar100_mlcl.yaml"
EPOCHS = 200
DIGITS = {"source": "digits", "options": {"scenes": 100, "size": 16}}


def texts(points: Points, device: str) -> dict[str, Any]:
    """Returns the job of the features encoder on the bundled texts, with 20 epochs."""
    data = prepare("icd10cm", home(points) / "data")
    job = features.tree(str(data), "chapter", False, None, epochs=1 if points.smoke else features.EPOCHS)
    job["data"]["subset"] = {"n": 200 if points.smoke else 7_000, "labels": "chapter"}
    job["train"] |= {"device": device}
    return job


def home(points: Points) -> Path:
    """Returns the folder of data sets and caches, which lies beside the figures."""
    return points.file.parent / "home"


def measure_features(points: Points) -> None:
    """Measures the seconds of one training on one thread of the CPU, and on the device."""
    for device in ("cpu", points.device.type):
        points.measure(f"features on {device}", partial(one_training, points, device))


def one_training(points: Points, device: str) -> Figures:
    job = texts(points, device)
    features.train(job | {"train": job["train"] | {"epochs": 1}}, str(home(points)))
    metrics = features.train(job, str(home(points)))
    return {
        "seconds": metrics["wall"],
        "of steps": metrics["time/train_seconds"],
        "of evaluation": metrics["time/evaluation_seconds"],
        "test accuracy": metrics["test/accuracy"],
    }


def measure_packing(points: Points) -> None:
    """Measures the trainings per hour of several processes on a device, like trials with part of a GPU."""
    job = texts(points, points.device.type)
    for processes in (2,) if points.smoke else TOGETHER:
        points.measure(f"{processes} at once", partial(packed, points, job, processes))


def packed(points: Points, job: dict[str, Any], processes: int) -> Figures:
    count = 1 if points.smoke else TRAININGS
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        work = partial(features.several_trainings, job, str(home(points)))
        max_seconds = max(pool.map(work, [count] * processes))
    return {"trainings an hour": 3_600 * processes * count / max_seconds}


def measure_training(points: Points, data: str | None) -> None:
    """Trains MLCL on CIFAR-100 with ResNet-18 as long as time is left; the next call resumes the training."""
    name = "cifar100 mlcl resnet18"
    if points.points.get(name, {}).get("done"):
        return
    job, events = image_job(points, data), list[Event]()
    folder, start = points.file.parent / "training", time.monotonic()
    outcome, metric = None, job.evaluation.metric.removeprefix("val/")
    try:
        outcome = run_experiment(
            JobData.of(job, home(points), verify=False),
            folder=folder,
            context=Context(points.device),
            listener=events.append,
            should_stop=lambda: points.rest <= 0,
        )
    except Stopped:
        points.left.append(name)
    last_figures: Figures = {}
    for event in events:
        last_figures |= {key: event.metrics[key] for key in RATES if key in event.metrics}
    points.keep(
        name,
        {
            "done": outcome is not None,
            "resumed": any(event.note == "resumed" for event in events),
            "epochs": events[-1].epoch,
            "seconds of this call": time.monotonic() - start,
            **last_figures,
            **({} if outcome is None else {"test": outcome.metrics[f"test/{metric}"]}),
        },
    )


RATES = ("train/rows_per_second", "train/data_wait", "train/loss", "val/accuracy", "probe/val/accuracy")


def image_job(points: Points, data: str | None) -> Any:
    """Returns the paper's job with ResNet-18, or a small job of the bundled digits for a smoke run."""
    changes: dict[str, Any] = {"encoder.name": "resnet18", "train.epochs": EPOCHS}
    changes |= {"train.device": points.device.type, "train.precision": points.precision}
    if points.smoke:
        head, classifier = ({"loss": loss, "labels": "digits"} for loss in ("any", "bce"))
        changes |= {"data": DIGITS, "objective.heads": {"subclass": head}}
        changes |= {"objective.classifier": classifier | {"weight": 0}, "encoder.image_size": 8}
        changes |= {"evaluation.metric": "val/micro_f1"}
        changes |= {"evaluation.probe": {"epochs": 1}, "train.epochs": 1, "train.batch_size": 8}
    elif data is not None:
        changes["data"] = {"path": str(Dataset.open(data).place)}
    return load_job(JOB, changes)
