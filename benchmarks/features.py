"""Measures the speed of the encoder `features` beside the same network in plain PyTorch and linear models.

    python benchmarks/features.py [DATA] [--labels SPACE] [--model package:NAME]

DATA is the folder of a prepared data set of texts with a multi-label space; by default, texts of the bundled
ICD-10-CM are used. The rows of the frozen inputs are put into the cache first, and are not part of any time.
Every contender runs on one thread. The trainings a minute are those of two processes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from torch import nn

from mlcl.config import load_job
from mlcl.data import Dataset, prepare
from mlcl.labels import LabelRows
from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

EPOCHS, BATCH, OUT = 20, 256, 256
PLAIN_EPOCHS = 2
"""The measured epochs of the dense network, which are slow; the time is scaled up to all epochs."""
ON_ONE_THREAD = {"threads": 1, "device": "cpu"}


def tree(
    data: str, labels: str, multi_label: bool, model: str | None, epochs: int = EPOCHS
) -> dict[str, Any]:
    encoder: dict[str, Any] = {"name": "features", "inputs": ["tfidf"], "out": OUT}
    if model is not None:
        encoder |= {"inputs": ["tfidf", "transformer"], "transformer": {"model": model}}
    return {
        "experiment": "benchmark",
        "data": {"path": data},
        "encoder": encoder,
        "objective": {"classifier": {"loss": "bce" if multi_label else "cross_entropy", "labels": labels}},
        "train": {"epochs": epochs, "batch_size": BATCH, "lr": 0.01, "patience": None} | ON_ONE_THREAD,
        "evaluation": {"metric": "val/micro_f1" if multi_label else "val/accuracy"},
    }


def train(document: dict[str, Any], home: str) -> dict[str, float]:
    """Runs one training with its evaluation and files, as a trial does, and returns its metrics and times."""
    torch.set_num_threads(1)
    start, cpu_start = time.perf_counter(), time.process_time()
    job = load_job(document)
    job_data, context = JobData.of(job, Path(home), verify=False), Context.current(job.train.device)
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_experiment(job_data, folder=Path(folder), context=context, listener=lambda _: None)
    assert outcome is not None
    times = {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu_start}
    return {**outcome.metrics, **times}


def several_trainings(document: dict[str, Any], home: str, count: int) -> float:
    """Returns the seconds of `count` trainings, after a first one that also pays for the imports."""
    train(document, home)
    start = time.perf_counter()
    for _ in range(count):
        train(document, home)
    return time.perf_counter() - start


def plain(job_data: JobData) -> float:
    """Returns the CPU seconds of 20 epochs of the network with dense layers, scaled up from a few epochs."""
    rows = job_data.encode(job_data.train)
    x_NF = torch.cat([torch.from_numpy(_dense(x)) for x in rows.inputs.inputs.values()], dim=1)
    targets = job_data.targets(job_data.train)
    multi_label = isinstance(targets, LabelRows)
    y_N = targets.dense(torch.float32) if isinstance(targets, LabelRows) else targets
    classes = job_data.space.n_classes
    deep = nn.Sequential(nn.Linear(x_NF.shape[1], OUT), nn.GELU(), nn.Dropout(0.3), nn.Linear(OUT, classes))
    wide = nn.Linear(x_NF.shape[1], classes, bias=False)
    optimizer = torch.optim.AdamW([*deep.parameters(), *wide.parameters()], lr=0.01)
    loss = nn.BCEWithLogitsLoss() if multi_label else nn.CrossEntropyLoss()
    start = time.process_time()
    for _ in range(PLAIN_EPOCHS):
        for batch in torch.randperm(len(x_NF)).split(BATCH):
            optimizer.zero_grad()
            loss(deep(x_NF[batch]) + wide(x_NF[batch]), y_N[batch]).backward()
            optimizer.step()
    return (time.process_time() - start) * EPOCHS / PLAIN_EPOCHS


def linear(job_data: JobData, model: Any) -> tuple[float, float]:
    """Returns the CPU seconds and the micro-F1 (or accuracy) of a linear model on TF-IDF."""
    assert job_data.features is not None
    test = job_data.dataset.split("test")
    x, x_test = (job_data.features.rows(split).inputs["tfidf"] for split in (job_data.train, test))
    y, y_test = (_targets(job_data, split) for split in (job_data.train, test))
    start = time.process_time()
    classifier = OneVsRestClassifier(model).fit(x, y) if y.ndim > 1 else model.fit(x, y)
    seconds = time.process_time() - start
    return seconds, f1_score(y_test, classifier.predict(x_test), average="micro", zero_division=0)


def _targets(job_data: JobData, split: Any) -> Any:
    targets = job_data.targets(split)
    return targets.dense(torch.float32).numpy() if isinstance(targets, LabelRows) else targets.numpy()


def _dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows.copy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--labels")
    parser.add_argument("--model")
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = args.data or prepare("icd10cm", args.home / "data")
    info = Dataset.open(data).info
    labels = args.labels or ("chapter" if args.data is None else next(iter(info.label_spaces)))
    multi_label = info.space(labels).kind == "multi_label"
    job = tree(str(data), labels, multi_label, args.model)
    if args.data is None:
        job["data"]["subset"] = {"n": 7_000, "labels": labels}
    job_data = JobData.of(load_job(job), args.home, verify=False)
    for split in ("train", "validation", "test"):  # encoding puts the rows into the cache
        job_data.encode(job_data.train if split == "train" else job_data.dataset.split(split))
    columns = ", ".join(
        f"{name} {size:,}" for name, size in (job_data.features.columns if job_data.features else {}).items()
    )
    print(f"{len(job_data.train):,} rows of {info.name}, {columns} columns, {EPOCHS} epochs of {BATCH}")
    metric = "test/micro_f1" if multi_label else "test/accuracy"
    train(tree(str(data), labels, multi_label, args.model, epochs=1) | {"data": job["data"]}, str(args.home))
    ours = train(job, str(args.home))
    detail = f"steps {ours['time/train_seconds']:.1f} s, evaluation {ours['time/evaluation_seconds']:.1f} s"
    print(
        f"features:            {ours['cpu']:6.1f} CPU s ({ours['wall']:.1f} s: {detail}), {ours[metric]:.4f}"
    )
    print(f"dense, plain torch:  {plain(job_data):6.1f} CPU s for the steps alone")
    for name, model in (("LinearSVC", LinearSVC()), ("LogisticRegression", LogisticRegression())):
        seconds, figure = linear(job_data, model)
        print(f"{name + ':':20} {seconds:6.1f} CPU s, {figure:.4f}")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(several_trainings, job, str(args.home), 2) for _ in range(2)]
        max_seconds = max(future.result() for future in futures)
    print(f"two processes:       {4 * 60 / max_seconds:6.1f} trainings a minute")


if __name__ == "__main__":
    main()
