"""An exported model, loaded: texts or images in, probabilities and names out.

Shapes: M rows, O an encoder's output, C classes, L labels, A aspects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mlcl.config import AugmentConfig, JobConfig, load_job
from mlcl.data import Tokenizer, load_tokenizer
from mlcl.errors import UserError
from mlcl.evaluation.tasks import Array, array
from mlcl.models.encoders import ENCODERS
from mlcl.plugins import only_reading
from mlcl.training.batches import Rows
from mlcl.training.context import Context, pick_device
from mlcl.training.embeddings import Datastore, SplitEncoder
from mlcl.training.evaluator import Predictor, classify
from mlcl.training.export.model_index import DATASTORE, NETWORK, Index, Way, read_index
from mlcl.training.export.network import Network, read_datastore, read_weights, rebuilt_network
from mlcl.training.export.predictions import Predictions, decide
from mlcl.training.features.inputs import SavedFeatures
from mlcl.training.input_reader import Content, InputReader
from mlcl.training.run_files import JOB, TOKENIZER

DEVICES = ("auto", "cpu", "cuda")


def load_model(folder: str | Path, device: str = "auto") -> ExportedModel:
    """The model in a folder that `mlcl export` wrote; `device` is auto, cpu or cuda.

    Nothing but the folder is read. Raises UserError for a damaged folder, one of a newer mlcl, a GPU that is
    not there, and a package that the encoder needs and that is not installed.
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
        network = rebuilt_network(job, index.space, words, columns, folder, probe="probe" in index.ways)
    try:
        network.load_state_dict(read_weights(folder / NETWORK))
    except RuntimeError as error:
        raise UserError("weights of another model", file=folder / NETWORK, found=error) from None
    store = read_datastore(folder / DATASTORE, index.task, index.space.n_classes, network.dim)
    return ExportedModel(index, job, network.to(context.device).eval(), reader, store, context)


class ExportedModel:
    """A trained model with its preprocessing, its label names and its neighbours.

    `index` says what it is; `classes_` are the names in the order of the probabilities' last axis (with
    aspects the ratings), and `aspects_` the aspects.
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
        way: Way | None = None,
        threshold: float | None = None,
        batch_size: int | None = None,
    ) -> Predictions:
        """Names and probabilities of texts, or of images (encoded bytes, or paths of files).

        `way` is one of `index.ways`, by default the best on validation; `threshold` is for several labels,
        by default as validation chose.
        Raises UserError for another way, for what is no such list, and for an image that cannot be decoded.
        """
        probabilities = self.predict_proba(inputs, way=way, batch_size=batch_size)
        return decide(self.index, probabilities, self.way(way), threshold)

    def predict_proba(
        self, inputs: Sequence[Content], *, way: Way | None = None, batch_size: int | None = None
    ) -> Array:
        """Probabilities (M, C), (M, L) or (M, A, C) of texts or images; the rest as in `predict`."""
        # What is iterated over as characters, keys or names of columns would be labelled all the same.
        named = isinstance(inputs, str | bytes | Mapping) or hasattr(inputs, "columns")
        if named or not isinstance(inputs, Iterable):
            raise UserError("not a list of texts or images", key="inputs", found=type(inputs).__name__)
        if batch_size is not None and batch_size < 1:
            raise UserError("must be at least 1", key="batch_size", found=batch_size)
        inputs, way = list(inputs), self.way(way)
        size = batch_size or self.job.evaluation.batch_size
        parts = [
            self.probabilities(self.outputs(inputs[first : first + size]), way)
            for first in range(0, max(1, len(inputs)), size)
        ]
        return array(torch.cat(parts))

    def way(self, way: str | None) -> Way:
        """The way of that name, by default the best one. Raises UserError for another."""
        chosen = next((known for known in self.index.ways if known == (way or self.index.best)), None)
        if chosen is None:
            raise UserError("this model has no such way", key="way", found=way, allowed=list(self.index.ways))
        return chosen

    def outputs(self, inputs: Sequence[Content], places: Sequence[str] | None = None) -> Tensor:
        """The encoder's outputs (M, O) float32 of one batch; `places` say in errors where its rows stood."""
        places = places or [f"row {row}" for row in range(len(inputs))]
        rows = Rows(self._reader.contents(inputs, places), {}, torch.arange(len(inputs)), AugmentConfig())
        size, precision = max(1, len(inputs)), self.job.train.precision
        return SplitEncoder(self._network.encoder, size, precision, self._context).outputs(rows)

    def probabilities(self, output_MO: Tensor, way: Way) -> Tensor:
        """Probabilities of the encoder's outputs, on the CPU."""
        setting = self.index.ways[way]
        if setting is None:
            return self._layer(way)(output_MO)
        neighbours = self.store.retrieve(output_MO, setting.k)
        model = self._layer(next(iter(self.index.ways)))(output_MO)
        return self.store.blended(neighbours, model, setting.setting)

    def _layer(self, name: Way) -> Predictor:
        layer = self._network.layers[name]
        return lambda output_MO: classify(
            layer, self._network.features(output_MO, name), self.index.task, self._context
        )


def _job(file: Path) -> JobConfig:
    """The job. Its plugin files are run only where its encoder is one of theirs: predicting needs no loss."""
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
