"""Loads exported models: trained networks and fitted baselines.

Shapes: M rows, O an encoder's output, C classes, L labels, A aspects.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mlcl.config import AugmentConfig, JobConfig, load_job
from mlcl.data import Tokenizer, load_tokenizer
from mlcl.errors import UserError
from mlcl.models.encoders import ENCODERS
from mlcl.plugins import only_reading
from mlcl.training.baselines import BASELINES
from mlcl.training.batches import Rows
from mlcl.training.context import Context, pick_device
from mlcl.training.embeddings import Datastore, SplitEncoder
from mlcl.training.evaluator import Predictor, classify
from mlcl.training.export.baseline import load_baseline
from mlcl.training.export.model import ExportedModel
from mlcl.training.export.model_index import DATASTORE, INDEX, NETWORK, Index, PredictorName, read_index
from mlcl.training.export.network import Network, read_datastore, read_weights, rebuild_network
from mlcl.training.features.inputs import SavedFeatures, sections
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
    if job.baseline != index.baseline:
        raise UserError(
            "not the job's baseline",
            file=folder / INDEX,
            key="baseline",
            found=index.baseline,
            allowed=job.baseline,
        )
    context = Context(pick_device(device))
    if job.baseline is not None:
        return load_baseline(folder, index, job, context.device)
    return _load_network(folder, index, job, context)


def _load_network(folder: Path, index: Index, job: JobConfig, context: Context) -> NetworkModel:
    features = SavedFeatures.load(sections(job.encoder), folder, context.device)
    words, columns = None, features.columns
    reader: InputReader | SavedFeatures = features
    if not columns:
        has_tokens = ENCODERS[job.encoder.name].tokenizer is not None
        tokenizer = _tokenizer(folder / TOKENIZER) if has_tokens else None
        words = None if tokenizer is None else tokenizer.get_vocab_size()
        reader = InputReader.of(job, tokenizer)
    with torch.random.fork_rng(devices=()):  # first weights are drawn and then replaced
        network = rebuild_network(job, index.space, words, columns, folder, probe="probe" in index.predictors)
    try:
        network.load_state_dict(read_weights(folder / NETWORK))
    except RuntimeError as error:
        raise UserError("weights of another model", file=folder / NETWORK, found=error) from None
    store = read_datastore(folder / DATASTORE, index.task, index.space.n_classes, network.dim)
    return NetworkModel(index, job, network.to(context.device).eval(), reader, store, context)


class NetworkModel(ExportedModel):
    """An exported network with its predictors and its neighbours."""

    def __init__(
        self,
        index: Index,
        job: JobConfig,
        network: Network,
        reader: InputReader | SavedFeatures,
        store: Datastore,
        context: Context,
    ) -> None:
        super().__init__(index, job, store)
        self._network, self._reader, self._store, self._context = network, reader, store, context

    def outputs(self, inputs: Sequence[Content], places: Sequence[str] | None = None) -> Tensor:
        """Computes the encoder's outputs (M, O) float32 of one batch."""
        places = places or [f"row {row}" for row in range(len(inputs))]
        rows = Rows(self._reader.contents(inputs, places), {}, torch.arange(len(inputs)), AugmentConfig())
        size, precision = max(1, len(inputs)), self.job.train.precision
        return SplitEncoder(self._network.encoder, size, precision, self._context).outputs(rows)

    def probabilities(self, output_MO: Tensor, predictor: PredictorName) -> Tensor:
        """Computes a predictor's probabilities from the encoder's outputs (M, O)."""
        setting = self.index.predictors[predictor]
        if setting is None:
            return self._layer(predictor)(output_MO)
        neighbours = self._store.retrieve(output_MO, setting.k)
        model = self._layer(next(iter(self.index.predictors)))(output_MO)
        return self._store.blended(neighbours, model, setting.setting)

    def _layer(self, name: PredictorName) -> Predictor:
        layer = self._network.layers[name]
        return lambda output_MO: classify(
            layer, self._network.features(output_MO, name), self.index.task, self._context
        )


def _job(file: Path) -> JobConfig:
    """Loads the job. Runs its plugin files only if one declares the encoder or the baseline."""
    with only_reading():
        job = load_job(file)
    known = job.encoder.name in ENCODERS if job.baseline is None else job.baseline in BASELINES
    return job if known else load_job(file)


def _tokenizer(file: Path) -> Tokenizer:
    try:
        return load_tokenizer(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("not a tokenizer", file=file, found=error) from None
    except UserError as error:
        raise UserError(error.problem, file=file, found=error.found) from None
