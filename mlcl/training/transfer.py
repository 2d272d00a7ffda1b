"""What an encoder's features are worth on another data set: a linear probe, trained and tested there.

Shapes: N rows, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mlcl.config import ProbeConfig
from mlcl.config.job import TransferConfig
from mlcl.config.space import default_mode
from mlcl.data import Dataset, Split, prepare, rating_classes
from mlcl.errors import UserError
from mlcl.evaluation import Task, evaluate, linear_probe, metric_names, predict
from mlcl.training.objective import Labels

KINDS: dict[str, Task] = {"single": "single", "multi_label": "multi_label", "aspects": "aspects"}


@dataclass(frozen=True)
class Transfer:
    """Another data set, and what is predicted there."""

    dataset: Dataset
    config: TransferConfig
    task: Task

    @classmethod
    def of(cls, config: TransferConfig, home: Path, modality: str) -> Transfer:
        """Opens and checks it. Raises UserError for another modality, label space or metric."""
        place = config.path
        if place is None:
            assert config.source is not None
            place = str(prepare(config.source, home / "data", config.options, config.split_seed))
        dataset = Dataset.open(place)
        key = "evaluation.transfer_to"
        if dataset.info.modality != modality:
            raise UserError(
                "holds another modality", file=dataset.place, key=key, found=dataset.info.modality,
                allowed=modality,
            )  # fmt: skip
        space = dataset.info.space(config.labels)
        task = KINDS.get(space.kind)
        if task is None:
            raise UserError(
                "cannot be predicted", key=f"{key}.labels", found=f"{config.labels} ({space.kind})",
                allowed=list(KINDS),
            )  # fmt: skip
        names = metric_names(task, aspects=space.aspects, n_labels=space.n_classes)
        if config.metric not in names:
            raise UserError(
                "no such metric for this task", key=f"{key}.metric", found=config.metric, allowed=names
            )
        return cls(dataset, config, task)

    def measure(
        self, encode: Callable[[Split], Tensor], probe: ProbeConfig, seed: int, threshold: float, main: bool
    ) -> dict[str, float]:
        """`transfer/val/...` and `transfer/test/...` of the probe that is best on validation.

        `encode` gives the embeddings (N, D) of a split, on every rank; `main` is the one that probes them.
        Source: MLCL, supplement 8.2 (a linear classifier on the frozen encoder, on CIFAR-10 after CIFAR-100).
        """
        splits = {name: self.dataset.split(name) for name in ("train", "validation", "test")}
        embeddings = {name: encode(split) for name, split in splits.items()}
        if not main:
            return {}
        space = self.dataset.info.space(self.config.labels)
        targets = {name: self._targets(split) for name, split in splits.items()}
        result = linear_probe(
            embeddings["train"],
            targets["train"],
            embeddings["validation"],
            targets["validation"],
            task=self.task,
            n_classes=space.n_classes,
            lrs=probe.lr,
            weight_decays=probe.weight_decay,
            epochs=probe.epochs,
            batch_size=probe.batch_size,
            seed=seed,
            metric=self.config.metric,
            mode=default_mode(self.config.metric),
            threshold=threshold,
            aspects=space.aspects,
        )
        tested = predict(result, embeddings["test"])
        test = evaluate(self.task, tested, targets["test"], threshold, space.aspects)
        return {
            **{f"transfer/val/{name}": value for name, value in result.metrics.items()},
            **{f"transfer/test/{name}": value for name, value in test.items()},
        }

    def _targets(self, split: Split) -> Labels:
        labels = split.labels(self.config.labels)
        if self.task == "aspects":
            assert isinstance(labels, Tensor)
            return rating_classes(labels, self.dataset.info.space(self.config.labels).scale)
        return labels
