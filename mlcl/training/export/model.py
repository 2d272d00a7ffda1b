"""Loads an exported model, which predicts the labels of texts, images or vectors.

Shapes: M rows, O an encoder's output, C classes, L labels, A aspects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.config import AugmentConfig, JobConfig, load_job
from mlcl.data import Tokenizer, load_tokenizer
from mlcl.errors import UserError
from mlcl.evaluation import Decision
from mlcl.evaluation.tasks import Array, array
from mlcl.models.encoders import ENCODERS
from mlcl.plugins import only_reading
from mlcl.training.batches import Rows
from mlcl.training.context import Context, pick_device
from mlcl.training.embeddings import Datastore, SplitEncoder
from mlcl.training.evaluator import Predictor, classify
from mlcl.training.export.model_index import DATASTORE, NETWORK, Index, PredictorName, read_index
from mlcl.training.export.network import Network, read_datastore, read_weights, rebuild_network
from mlcl.training.features.inputs import SavedFeatures
from mlcl.training.input_reader import Content, InputReader
from mlcl.training.run_files import JOB, TOKENIZER

DEVICES = ("auto", "cpu", "cuda")


def load_model(folder: str | Path, device: str = "auto") -> ExportedModel:
    """Loads a model from a folder that `mlcl export` wrote; nothing outside of the folder is read.

    Args:
        folder: The folder.
        device: `auto`, `cpu` or `cuda`.

    Raises:
        UserError: The folder is damaged or was written by a newer mlcl, there is no GPU for `cuda`, or a
            package that the encoder needs is not installed.

    Example:
        >>> mlcl.load_model("model").predict(["a text"]).labels
    """
    if device not in DEVICES:
        raise UserError("no such device", key="device", found=device, allowed=DEVICES)
    folder = Path(folder).expanduser()
    index = read_index(folder)
    job = _job(folder / JOB)
    context = Context(pick_device(device))
    features = SavedFeatures.load(job.encoder, folder, context.device)
    words, columns = None, features.columns
    reader: InputReader | SavedFeatures = features
    if not columns:
        tokenizer = _tokenizer(folder / TOKENIZER) if index.modality == "text" else None
        words = None if tokenizer is None else tokenizer.get_vocab_size()
        reader = InputReader.of(job, tokenizer)
    with torch.random.fork_rng(devices=()):  # first weights are drawn and then replaced
        network = rebuild_network(job, index.space, words, columns, folder, probe="probe" in index.predictors)
    try:
        network.load_state_dict(read_weights(folder / NETWORK))
    except RuntimeError as error:
        raise UserError("weights of another model", file=folder / NETWORK, found=error) from None
    store = read_datastore(folder / DATASTORE, index.task, index.space.n_classes, network.dim)
    return ExportedModel(index, job, network.to(context.device).eval(), reader, store, context)


class ExportedModel:
    """A trained model with its preprocessing, its label names and its neighbours; see `load_model`.

    `index` describes the model, `classes_` are the names of the columns of probabilities, which are ratings
    for a model with aspects, and `aspects_` are the names of the aspects.
    """

    def __init__(
        self,
        index: Index,
        job: JobConfig,
        network: Network,
        reader: InputReader | SavedFeatures,
        store: Datastore,
        context: Context,
    ) -> None:
        self.index, self.job, self.store = index, job, store
        self._network, self._context = network, context
        self._reader = reader
        ratings = tuple(f"{value:g}" for value in index.space.scale)
        self.classes_: tuple[str, ...] = index.space.classes or ratings
        self.aspects_: tuple[str, ...] = index.space.aspects

    def predict(
        self,
        inputs: Sequence[Content],
        *,
        predictor: PredictorName | None = None,
        threshold: float | None = None,
        batch_size: int | None = None,
    ) -> Predictions:
        """Predicts labels.

        Args:
            inputs: Texts, images (encoded bytes, paths of files, or of Pillow) or vectors.
            predictor: The predictor, one of `index.predictors`; by default the best on validation.
            threshold: The least probability at which a label is predicted, for a model that predicts several
                labels; by default what was chosen on validation.
            batch_size: The number of rows of a batch; by default the job's.

        Raises:
            UserError: `inputs` is not a list, one of its entries cannot be read, or an argument is invalid.
        """
        probabilities = self.predict_proba(inputs, predictor=predictor, batch_size=batch_size)
        return decide(self.index, probabilities, self.predictor(predictor), threshold)

    def predict_proba(
        self,
        inputs: Sequence[Content],
        *,
        predictor: PredictorName | None = None,
        batch_size: int | None = None,
    ) -> Array:
        """Returns probabilities (M, C), (M, L) or (M, A, C); see `predict` for the arguments."""
        # Iterating over these would predict their characters, keys or names of columns.
        named = isinstance(inputs, str | bytes | Mapping) or hasattr(inputs, "columns")
        if named or not isinstance(inputs, Iterable):
            raise UserError("not a list of texts or images", key="inputs", found=type(inputs).__name__)
        if batch_size is not None and batch_size < 1:
            raise UserError("must be at least 1", key="batch_size", found=batch_size)
        inputs, predictor = list(inputs), self.predictor(predictor)
        size = batch_size or self.job.evaluation.batch_size
        parts = [
            self.probabilities(self.outputs(inputs[first : first + size]), predictor)
            for first in range(0, max(1, len(inputs)), size)
        ]
        return array(torch.cat(parts))

    def predictor(self, predictor: str | None) -> PredictorName:
        """Returns the name of a predictor, by default the best one. Raises UserError for an unknown one."""
        chosen = next(
            (known for known in self.index.predictors if known == (predictor or self.index.best)), None
        )
        if chosen is None:
            raise UserError(
                "this model has no such predictor",
                key="predictor",
                found=predictor,
                allowed=list(self.index.predictors),
            )
        return chosen

    def outputs(self, inputs: Sequence[Content], places: Sequence[str] | None = None) -> Tensor:
        """Computes the encoder's outputs (M, O) float32 of one batch.

        `places` say where the rows come from, for error messages.
        """
        places = places or [f"row {row}" for row in range(len(inputs))]
        rows = Rows(self._reader.contents(inputs, places), {}, torch.arange(len(inputs)), AugmentConfig())
        size, precision = max(1, len(inputs)), self.job.train.precision
        return SplitEncoder(self._network.encoder, size, precision, self._context).outputs(rows)

    def probabilities(self, output_MO: Tensor, predictor: PredictorName) -> Tensor:
        """Computes a predictor's probabilities, on the CPU, from the encoder's outputs (M, O)."""
        setting = self.index.predictors[predictor]
        if setting is None:
            return self._layer(predictor)(output_MO)
        neighbours = self.store.retrieve(output_MO, setting.k)
        model = self._layer(next(iter(self.index.predictors)))(output_MO)
        return self.store.blended(neighbours, model, setting.setting)

    def _layer(self, name: PredictorName) -> Predictor:
        layer = self._network.layers[name]
        return lambda output_MO: classify(
            layer, self._network.features(output_MO, name), self.index.task, self._context
        )


def _job(file: Path) -> JobConfig:
    """Loads the job. Runs its plugin files only if one declares the encoder: predicting needs no loss."""
    with only_reading():
        job = load_job(file)
    return job if job.encoder.name in ENCODERS else load_job(file)


def _tokenizer(file: Path) -> Tokenizer:
    try:
        return load_tokenizer(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("not a tokenizer", file=file, found=error) from None
    except UserError as error:
        raise UserError(error.problem, file=file, found=error.found) from None


@dataclass(frozen=True)
class Predictions:
    """The predictions for M rows.

    Args:
        labels: The class name of each row; with several labels a list of names, with aspects a dict from the
            name of each aspect to its rating.
        probabilities: Probabilities (M, C), (M, L) or (M, A, C).
        columns: A table, with the values of each column by its name: `label` and `probability`, whose values
            are lists if there are several labels; `label.ASPECT` and `probability.ASPECT` with aspects; and
            `label.LEVEL`, the predicted class's parent at a coarser level.
    """

    labels: Sequence[Any]
    probabilities: Array
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(self.labels)


def decide(
    index: Index, probabilities: Array, predictor: PredictorName, threshold: float | None = None
) -> Predictions:
    """Predicts the most probable class, the first of equal ones, or the labels that `label_decision` selects.

    Raises the errors of `check_threshold`.
    """
    check_threshold(index, threshold)
    if index.task == "multi_label":
        return _several(index, probabilities, label_decision(index, predictor, threshold))
    if index.task == "aspects":
        return _aspects(index, probabilities)
    best_M, probability_M = _best(probabilities)
    labels = [index.space.classes[best] for best in best_M]
    columns: dict[str, list[Any]] = {"label": labels, "probability": probability_M.tolist()}
    for name, level in index.levels.items():
        columns[f"label.{name}"] = [
            None if level.parents[best] < 0 else level.classes[level.parents[best]] for best in best_M
        ]
    return Predictions(labels, probabilities, columns)


def label_decision(index: Index, predictor: PredictorName, threshold: float | None) -> Decision:
    """Returns the rule that says which labels are predicted, for a given threshold.

    Without a threshold it is the rule that was chosen on validation.
    """
    return index.decisions[predictor] if threshold is None else Decision.fixed(threshold)


def check_threshold(index: Index, threshold: float | None) -> None:
    """Raises UserError if the threshold is outside 0 to 1, or the model does not predict several labels."""
    if threshold is None:
        return
    if index.task != "multi_label":
        raise UserError(
            "is for several labels; this model predicts the most probable class",
            key="threshold",
            found=threshold,
        )
    if not 0 <= threshold <= 1:
        raise UserError("no probability", key="threshold", found=threshold, allowed="0 to 1")


def _several(index: Index, probability_ML: Array, decision: Decision) -> Predictions:
    rows = [np.flatnonzero(row_L) for row_L in decision.predict(probability_ML)]
    labels = [[index.space.classes[label] for label in row] for row in rows]
    values = [row_L[row].tolist() for row, row_L in zip(rows, probability_ML, strict=True)]
    return Predictions(labels, probability_ML, {"label": labels, "probability": values})


def _aspects(index: Index, probability_MAC: Array) -> Predictions:
    best_MA, value_MA = _best(probability_MAC)
    ratings = [f"{value:g}" for value in index.space.scale]
    columns: dict[str, list[Any]] = {}
    for column, aspect in enumerate(index.space.aspects):
        columns[f"label.{aspect}"] = [ratings[best] for best in best_MA[:, column]]
        columns[f"probability.{aspect}"] = value_MA[:, column].tolist()
    rows = zip(*(columns[f"label.{aspect}"] for aspect in index.space.aspects), strict=True)
    labels = [dict(zip(index.space.aspects, row, strict=True)) for row in rows]
    return Predictions(labels, probability_MAC, columns)


def _best(probabilities: Array) -> tuple[Array, Array]:
    best = probabilities.argmax(-1)
    return best, np.take_along_axis(probabilities, best[..., None], -1)[..., 0]
