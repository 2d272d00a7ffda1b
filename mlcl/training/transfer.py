"""Transfer: a linear probe of the frozen encoder, trained and tested on another data set.

Shapes: N rows of a split, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mlcl.config import ProbeConfig
from mlcl.config.job import TransferConfig
from mlcl.config.space import default_mode
from mlcl.data import Dataset, Split, prepare
from mlcl.data.format import SPLITS
from mlcl.errors import UserError
from mlcl.evaluation import (
    METRICS,
    Mode,
    ProbeGrid,
    Scoring,
    Task,
    evaluate,
    linear_probe,
    metric_names,
    predict,
)
from mlcl.training.classifier import Labels
from mlcl.training.neighbours import RankRows
from mlcl.training.split_metrics import targets_of

KINDS: dict[str, Task] = {"single": "single", "multi_label": "multi_label", "aspects": "aspects"}


def probe_grid(config: ProbeConfig, seed: int) -> ProbeGrid:
    """The job's grid of linear probes."""
    return ProbeGrid(config.lr, config.weight_decay, config.epochs, config.batch_size, seed)


@dataclass(frozen=True)
class Transfer:
    """Another data set, and the label space that is predicted there."""

    dataset: Dataset
    config: TransferConfig
    task: Task

    @classmethod
    def of(cls, config: TransferConfig, home: Path, modality: str) -> Transfer:
        """Opens and checks it. Raises UserError for a split that is missing, another modality, and no such
        label space or metric.
        """
        place = config.path
        if place is None:
            assert config.source is not None
            place = str(prepare(config.source, home / "data", config.options, config.split_seed))
        dataset = Dataset.open(place)
        key = "evaluation.transfer_to"
        have = [split for split, rows in dataset.info.rows.items() if rows]
        if len(have) < len(SPLITS):
            raise UserError("a split is missing", file=dataset.place, key=key, found=have, allowed=SPLITS)
        if dataset.info.modality != modality:
            raise UserError(
                "holds another modality", file=dataset.place, key=key, found=dataset.info.modality,
                allowed=modality,
            )  # fmt: skip
        try:
            space = dataset.info.space(config.labels)
        except UserError as error:
            raise error.but(file=dataset.place, key=f"{key}.labels") from None
        task = KINDS.get(space.kind)
        if task is None:
            raise UserError(
                "cannot be predicted", key=f"{key}.labels", found=f"{config.labels} ({space.kind})",
                allowed=list(KINDS),
            )  # fmt: skip
        names = metric_names(task, aspects=space.aspects, n_labels=space.n_classes)
        if space.unknown:
            names = tuple(name for name in names if METRICS[name].takes_unknown)
        if config.metric not in names:
            raise UserError(
                "no such metric for this task", key=f"{key}.metric", found=config.metric, allowed=names
            )
        return cls(dataset, config, task)

    def measure(
        self,
        embeddings: Callable[[Split], RankRows],
        encode: Callable[[Split], Tensor],
        grid: ProbeGrid,
        threshold: Mode,
        at_least_one: bool = False,
    ) -> dict[str, float]:
        """`transfer/val/...` and `transfer/test/...` of the probe that is best on validation.

        `embeddings` gives those of a split's rows on this rank, `encode` those (N, D) of all its rows. Every
        rank calls this and returns the same.
        Source: MLCL, supplement 8.2 (a linear classifier on the frozen encoder, on CIFAR-10 after CIFAR-100).
        """
        space = self.dataset.info.space(self.config.labels)
        metric = self.config.metric
        scoring = Scoring(metric, default_mode(metric), threshold, space.aspects, at_least_one)
        train, validation = self.dataset.split("train"), self.dataset.split("validation")
        train_rows, val_ND = embeddings(train), encode(validation)
        result = linear_probe(
            train_rows.for_probe(self._targets(train)),
            val_ND,
            self._targets(validation),
            task=self.task,
            n_classes=space.n_classes,
            grid=grid,
            scoring=scoring,
        )
        # Opened when the probe is chosen, not before.
        test = self.dataset.split("test")
        predicted = predict(result, encode(test))
        tested = evaluate(self.task, predicted, self._targets(test), result.decision, space.aspects)
        return {
            **{f"transfer/val/{name}": value for name, value in result.metrics.items()},
            **{f"transfer/test/{name}": value for name, value in tested.items()},
        }

    def _targets(self, split: Split) -> Labels:
        return targets_of(split, self.config.labels, self.task)
