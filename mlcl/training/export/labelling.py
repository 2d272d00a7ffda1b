"""Implements `mlcl predict`: predicts all rows of an input, and computes metrics if their labels are known.

Shapes: M rows, O an encoder's output.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.config.plugin_files import run_plugins
from mlcl.data import Dataset, DatasetInfo, Split, hold_out
from mlcl.data.format import INFO_FILE, plural
from mlcl.data.tables.rows import Unreadable
from mlcl.data.validation_rows import redraw_validation
from mlcl.errors import UserError
from mlcl.evaluation import NO_FACTS, LabelFacts
from mlcl.evaluation.tasks import array, known_rows
from mlcl.training.export.model import ExportedModel, check_threshold, decide, label_decision
from mlcl.training.export.model_index import Index, PredictorName
from mlcl.training.export.prediction_files import Item, Sink, TableColumns, batches, read_items, split_items
from mlcl.training.split_metrics import METRIC_NAMES, SplitMetrics, levels_above, targets_of

SPLIT = "test"


@dataclass(frozen=True)
class Labelled:
    """The result of `Labelling.run`: number of rows, predictor, and metrics if the labels are known.

    `unknown` says whether the input is a data set without the labels that the model predicts. `unread` is the
    number of rows that cannot be read, such as empty texts; they get an `error` and no label.
    """

    rows: int
    predictor: PredictorName
    metrics: dict[str, float] = field(default_factory=dict)
    unknown: bool = False
    unread: int = 0


class Labelling:
    """Predicts a file, a folder of images, or a split of a data set, by default `SPLIT`.

    `predictor` is by default the best one, in which case metrics are computed for every predictor;
    `batch_size` is by default the job's. `threshold` is the least probability at
    which a label is predicted, for a model that predicts several labels; by default what was chosen on
    validation. With `probabilities` those of all classes are written, too. `columns` says how a table is
    read. Predictions of a file or a folder have an additional column `error`. Raises UserError for an
    argument that does not fit the model or the input.
    """

    def __init__(
        self,
        model: ExportedModel,
        path: Path,
        split: str | None = None,
        predictor: str | None = None,
        threshold: float | None = None,
        batch_size: int | None = None,
        probabilities: bool = False,
        columns: TableColumns | None = None,
    ) -> None:
        self._model, self._path, self._columns = model, path, columns
        check_threshold(model.index, threshold)
        self._predictor = model.predictor(predictor)
        self._scored_predictors: list[PredictorName] = (
            [self._predictor] if predictor else list(model.index.predictors)
        )
        self._threshold, self._has_probabilities = threshold, probabilities
        self._batch_size = batch_size or model.job.evaluation.batch_size
        self._split = _open_split(model, path, split)

    def run(self, write: Sink) -> Labelled:
        """Predicts all rows and passes each batch's predictions to `write`. Raises UserError without rows."""
        if self._split is not None and _can_score(self._model.index, self._split):
            return self._predict_split(self._split, write)
        split, modality = self._split, self._model.index.modality
        items = read_items(self._path, modality, self._columns) if split is None else split_items(split)
        rows = unread = 0
        for batch in batches(items, self._batch_size):
            output_MO, problems = (
                self._try_outputs(batch) if split is None else (self._compute_outputs(batch), None)
            )
            self._write_predictions([item.id for item in batch], output_MO, write, problems)
            unread += sum(map(bool, problems or []))
            rows += len(batch)
        if not rows:
            raise UserError("no rows", file=self._path)
        return Labelled(rows, self._predictor, unknown=split is not None, unread=unread)

    def _try_outputs(self, batch: Sequence[Item]) -> tuple[Tensor, list[str]]:
        """Returns the outputs of the readable rows, and the problem of each row, "" for a readable row."""
        problems = [str(item.content) if isinstance(item.content, Unreadable) else "" for item in batch]
        try:
            return self._compute_outputs(batch), problems
        except UserError:
            problems = [
                reason or self._find_problem(item) for item, reason in zip(batch, problems, strict=True)
            ]
            readable = [item for item, problem in zip(batch, problems, strict=True) if not problem]
            return self._compute_outputs(readable), problems

    def _find_problem(self, item: Item) -> str:
        try:
            self._compute_outputs([item])
        except UserError as error:
            return error.problem if error.found is None else f"{error.problem}: {error.found}"
        return ""

    def _predict_split(self, split: Split, write: Sink) -> Labelled:
        """Predicts a labelled split, all rows at once, so that the metrics equal those of the run exactly."""
        threads = self._model.job.train.threads
        if threads is not None:
            torch.set_num_threads(threads)
        chunks = batches(split_items(split), self._batch_size)
        output_MO = torch.cat([self._compute_outputs(batch) for batch in chunks])
        self._write_predictions(split.ids, output_MO, write)
        return Labelled(len(split), self._predictor, self._compute_metrics(split, output_MO))

    def _compute_metrics(self, split: Split, output_MO: Tensor) -> dict[str, float]:
        """Returns the predictors' metrics, also those of plugin files, keyed by the names that a run logs."""
        run_plugins(self._model.job.plugins)
        index, store = self._model.index, self._model.store
        score = self._build_metrics(split)
        targets, name = targets_of(split, index.labels, index.task), METRIC_NAMES[split.name]
        metrics: dict[str, float] = {}
        for predictor in self._scored_predictors:
            setting, overlap = index.predictors[predictor], math.nan
            if setting is not None and store is not None:
                overlap = store.overlap(store.retrieve(output_MO, setting.k), targets, setting.k)
            decision = label_decision(index, predictor, self._threshold)
            probabilities = self._model.probabilities(output_MO, predictor)
            metrics |= score(f"{index.prefix(predictor)}{name}", probabilities, split, decision, overlap)
        if store is not None:
            metrics |= score.of_embeddings(name, output_MO[:, : store.rows.values.shape[1]], split)
        return metrics

    def _build_metrics(self, split: Split) -> SplitMetrics:
        """Returns what computes a split's metrics, with the groups of the job if `_label_facts` are known."""
        index, info = self._model.index, split.info
        levels = {
            name: torch.tensor(level.parents)
            for name, level in index.levels.items()
            if name in info.label_spaces and info.space(name).classes == level.classes
        }
        facts, groups = _label_facts(index, info, levels), self._model.job.evaluation.metrics
        if facts is None:
            facts, groups = NO_FACTS, ()
        return SplitMetrics(index.task, index.labels, index.space.aspects, levels, groups, facts)

    def _compute_outputs(self, batch: Iterable[Item]) -> Tensor:
        """Returns the encoder's outputs (M, O) of the rows that can be read."""
        rows = [(item.content, item.place) for item in batch if not isinstance(item.content, Unreadable)]
        return self._model.outputs([content for content, _ in rows], [place for _, place in rows])

    def _write_predictions(
        self, ids: list[str], output_MO: Tensor, write: Sink, problems: list[str] | None = None
    ) -> None:
        """Writes the predictions of readable rows; a row with a problem gets its message and no label."""
        index, space = self._model.index, self._model.index.space
        probabilities = array(self._model.probabilities(output_MO, self._predictor))
        columns = dict(decide(index, probabilities, self._predictor, self._threshold).columns)
        if self._has_probabilities:
            columns["probabilities"] = probabilities.tolist()
        if problems is not None:
            for name, values in columns.items():
                is_list = index.task == "multi_label" or name == "probabilities"
                empty_value: list[Any] | None = [] if is_list else None
                if name == "probabilities" and space.aspects:
                    empty_value = [[] for _ in space.aspects]  # a Parquet column has one depth
                readable_values = iter(values)
                columns[name] = [empty_value if problem else next(readable_values) for problem in problems]
            columns["error"] = problems
        write({"id": ids, **columns})


def _can_score(index: Index, split: Split) -> bool:
    """Whether the split has the model's label space with equal classes, and a label for at least one row."""
    if index.labels not in split.info.space_names():
        return False
    # `unknown` may differ, since metrics leave out unknown entries.
    space = split.info.space(index.labels).model_copy(update={"unknown": index.space.unknown})
    if space != index.space:
        return False
    return bool(known_rows(index.task, targets_of(split, index.labels, index.task)).any())


def _label_facts(index: Index, info: DatasetInfo, shared_levels: Collection[str]) -> LabelFacts | None:
    """Returns what groups of metrics read; None if the index lacks it, or the data set has another hierarchy.

    `shared_levels` are the coarser levels that model and data set share.
    """
    facts, levels = index.facts, levels_above(info, index.labels)
    if facts is None:
        return None
    if facts.path is None:
        return LabelFacts(np.array(facts.band))
    if levels and (len(facts.path[0]) != len(levels) + 1 or not set(levels) <= set(shared_levels)):
        return None
    return LabelFacts(np.array(facts.band), np.array(facts.path))


def _restore_run_data(model: ExportedModel, data: Dataset) -> Dataset:
    """Returns the data set as the model's run had it; `data` if it is another data set.

    Without this, training rows of a redrawn validation and rows of held-out classes would be scored.
    """
    seed, unseen = model.job.data.validation_seed, model.job.data.hold_out
    run_fingerprint = model.index.provenance["data_fingerprint"]
    if unseen is None and (
        seed is None or data.info.with_validation(seed, data.info.rows).fingerprint != run_fingerprint
    ):
        return data
    with suppress(UserError):  # another data set may lack the labels, or rows
        dataset = data if seed is None else redraw_validation(data, seed)
        if unseen is not None:
            dataset = hold_out(dataset, unseen.labels, unseen.share, unseen.seed, data)
        return dataset if dataset.info.fingerprint == run_fingerprint else data
    return data


def _open_split(model: ExportedModel, path: Path, name: str | None) -> Split | None:
    """Returns the split to predict; None if `path` is no data set. Raises UserError if it does not fit."""
    if not (path / INFO_FILE).is_file():
        if name is not None:
            raise UserError("is for data sets, and this is not one", file=path, key="split", found=name)
        return None
    split = _restore_run_data(model, Dataset.open(path)).split(SPLIT if name is None else name)
    expected, actual = plural(model.index.modality), plural(split.info.modality)
    if expected != actual:
        raise UserError(f"this model reads {expected}", file=path, found=f"a data set of {actual}")
    return split
