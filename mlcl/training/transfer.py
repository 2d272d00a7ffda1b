"""Evaluates the trained encoder on data that it was not trained for: another data set, and held-out classes.

Shapes: N rows of a split, M of the test split, D embedding, C held-out classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from mlcl.config import JobConfig, ProbeConfig
from mlcl.config.job import DataConfig, TransferConfig
from mlcl.config.space.search import default_mode
from mlcl.data import Dataset, DatasetInfo, LabelSpace, Split, find_prepared, prepare
from mlcl.data.format import SPLITS, HeldOut
from mlcl.data.modifications import SHOTS
from mlcl.errors import UserError
from mlcl.evaluation import (
    FEW_SHOT_METRICS,
    METRICS,
    FewShot,
    ProbeGrid,
    Scoring,
    Task,
    evaluate,
    linear_probe,
    metric_names,
    predict,
)
from mlcl.evaluation.tasks import known_rows
from mlcl.labels import LabelRows
from mlcl.training.classifier import Labels
from mlcl.training.embeddings import RankRows
from mlcl.training.split_metrics import targets_of

DRAWS = 10
"""The number of random draws of rows on which the probe of held-out classes is trained."""
UNSEEN = ("unseen/1nn/test/", f"unseen/{SHOTS}shot/test/")
"""The prefixes of the metrics of held-out classes: by the nearest neighbour, and by the probe."""


def probe_grid(job: JobConfig) -> ProbeGrid:
    """Returns the learning rates, weight decays and other settings of the linear probe that a job sets."""
    probe = job.evaluation.probe or ProbeConfig()
    return ProbeGrid(probe.lr, probe.weight_decay, probe.epochs, probe.batch_size, job.train.seed)


def open_reference(
    config: DataConfig | TransferConfig, home: Path, *, verify: bool = False, is_recorded: bool = False
) -> Dataset:
    """Opens the data set that a section of a job names; prepares it first if the section names a source.

    With `is_recorded`, data that were prepared before are opened where the source's files are missing.
    """
    place = config.path
    if place is None:
        assert config.source is not None
        request = config.source, home / "data", config.options, config.split_seed
        try:
            place = str(prepare(*request))
        except UserError:
            prepared = find_prepared(*request) if is_recorded else None
            if prepared is None:
                raise
            place = str(prepared)
    return Dataset.open(place, verify=verify, notes=home / "cache")


@dataclass(frozen=True)
class Transfer:
    """A linear probe on the frozen encoder, trained and tested on another data set that the job names.

    `task` is the kind of prediction on that data set.
    """

    dataset: Dataset
    config: TransferConfig
    job: JobConfig
    task: Task

    @classmethod
    def of(
        cls, job: JobConfig, home: Path, job_info: DatasetInfo, *, is_recorded: bool = False
    ) -> Transfer | None:
        """Opens and checks the data set; None if the job names none. `job_info` describes the job's data set.

        Raises UserError if the data set lacks a split, has another modality or length of vectors, does not
        have the label space or the metric that the job names, or if no row of its train or validation split
        has a label.
        """
        config = job.evaluation.transfer_to
        if config is None:
            return None
        dataset, key = open_reference(config, home, is_recorded=is_recorded), "evaluation.transfer_to"
        info, place = dataset.info, dataset.place
        filled_splits = [split for split, rows in info.rows.items() if rows]
        if len(filled_splits) < len(SPLITS):
            raise UserError("a split is missing", file=place, key=key, found=filled_splits, allowed=SPLITS)
        if info.modality != job_info.modality:
            problem = "holds another modality"
            raise UserError(problem, file=place, key=key, found=info.modality, allowed=job_info.modality)
        if info.dim != job_info.dim:
            problem = "vectors of another length"
            raise UserError(problem, file=place, key=key, found=info.dim, allowed=job_info.dim)
        try:
            space = info.space(config.labels)
        except UserError as error:
            raise error.with_fields(file=place, key=f"{key}.labels") from None
        if space.kind == "hierarchy":
            actual, allowed = f"{config.labels} ({space.kind})", get_args(Task)
            raise UserError("cannot be predicted", key=f"{key}.labels", found=actual, allowed=allowed)
        names = metric_names(space.kind, aspects=space.aspects, n_labels=space.n_classes)
        if space.unknown:
            names = tuple(name for name in names if METRICS[name].takes_unknown)
        if config.metric not in names:
            problem = "no such metric for this task"
            raise UserError(problem, key=f"{key}.metric", found=config.metric, allowed=names)
        transfer = cls(dataset, config, job, space.kind)
        for name, split in (("training", "train"), ("validation", "validation")):
            if not known_rows(space.kind, transfer._read_targets(dataset.split(split))).any():
                problem = f"no {name} row has a label of it"
                raise UserError(problem, file=place, key=f"{key}.labels", found=config.labels)
        return transfer

    @property
    def space(self) -> LabelSpace:
        """The label space of the other data set that is predicted."""
        return self.dataset.info.space(self.config.labels)

    def measure(
        self, embeddings: Callable[[Split], RankRows], encode: Callable[[Split], Tensor]
    ) -> dict[str, float]:
        """Returns `transfer/val/...` and `transfer/test/...` of the probe that is best on validation.

        There are no metrics of the test split if none of its rows has a label. Every rank must call this; all
        return the same metrics. `embeddings` computes the embeddings of this rank's rows of a split, `encode`
        the embeddings (N, D) of all rows.
        Source: MLCL, supplement 8.2 (a linear classifier on the frozen encoder, on CIFAR-10 after CIFAR-100).
        """
        space, evaluation, metric = self.space, self.job.evaluation, self.config.metric
        scoring = Scoring(
            metric, default_mode(metric), evaluation.threshold, space.aspects, evaluation.at_least_one
        )
        train, validation = self.dataset.split("train"), self.dataset.split("validation")
        train_rows, val_ND = embeddings(train), encode(validation)
        result = linear_probe(
            train_rows.for_probe(self._read_targets(train)),
            val_ND,
            self._read_targets(validation),
            task=self.task,
            n_classes=space.n_classes,
            grid=probe_grid(self.job),
            scoring=scoring,
        )
        metrics = {f"transfer/val/{name}": value for name, value in result.metrics.items()}
        # Opened after the probe is chosen.
        test = self.dataset.split("test")
        probabilities, targets = predict(result, encode(test)), self._read_targets(test)
        if not known_rows(self.task, targets).any():
            return metrics
        test_metrics = evaluate(self.task, probabilities, targets, result.decision, space.aspects)
        return metrics | {f"transfer/test/{name}": value for name, value in test_metrics.items()}

    def _read_targets(self, split: Split) -> Labels:
        return targets_of(split, self.config.labels, self.task)


def unseen_names(dataset: Dataset) -> list[str]:
    """Returns the names of the metrics of held-out classes; empty if no class is held out."""
    held_out = dataset.info.held_out
    names = () if held_out is None else FEW_SHOT_METRICS[_unseen_task(dataset, held_out)]
    return [f"{prefix}{name}" for prefix in UNSEEN for name in names]


def unseen_metrics(dataset: Dataset, seed: int, encode: Callable[[Split], Tensor]) -> dict[str, float]:
    """Evaluates the encoder on test rows of classes that were held out of training.

    Neighbours are found among the held-out training rows of these classes, and a probe is trained on a few of
    them, drawn at random by `seed`. In a multi-label space only the held-out labels are predicted. The
    metrics are NaN if no training row or no test row has such a class. `encode` returns the embeddings (M, D)
    of a split's rows.
    """
    held_out = dataset.info.held_out
    assert held_out is not None
    numbers = {"unseen/classes": float(len(held_out.classes)), "unseen/rows": 0.0}
    train, test = dataset.unseen("train"), dataset.unseen("test")
    if train is None or test is None:
        return numbers | dict.fromkeys(unseen_names(dataset), math.nan)
    task, classes = _unseen_task(dataset, held_out), len(held_out.classes)
    rows = FewShot(encode(train), _unseen_targets(train, held_out), task, classes)
    queries_MD, targets = encode(test), _unseen_targets(test, held_out)
    results = (
        rows.nearest(queries_MD, targets),
        rows.probe(queries_MD, targets, shots=SHOTS, draws=DRAWS, seed=seed),
    )
    metrics = {
        f"{prefix}{name}": values[name]
        for prefix, values in zip(UNSEEN, results, strict=True)
        for name in values
    }
    return numbers | {"unseen/rows": float(len(test))} | metrics


def _unseen_task(dataset: Dataset, held_out: HeldOut) -> Task:
    kind = dataset.info.space(held_out.labels).kind
    return "multi_label" if kind == "multi_label" else "single"


def _unseen_targets(split: Split, held_out: HeldOut) -> Labels:
    """Returns the rows' held-out classes or labels, renumbered from 0."""
    labels, classes = split.labels(held_out.labels), torch.tensor(held_out.classes)
    return labels.only(classes) if isinstance(labels, LabelRows) else torch.searchsorted(classes, labels)
