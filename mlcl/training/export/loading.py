"""Loads exported models: trained networks and fitted baselines.

Shapes: M rows, O an encoder's output, C classes, L labels, A aspects.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from mlcl.config import AugmentConfig, JobConfig, load_job
from mlcl.data import Tokenizer, load_tokenizer
from mlcl.errors import UserError
from mlcl.evaluation import Ensemble, Setting
from mlcl.models.encoders import ENCODERS
from mlcl.plugins import only_reading
from mlcl.training.baselines import BASELINES
from mlcl.training.baselines.jobs import baseline_job
from mlcl.training.batches import Rows
from mlcl.training.checkpoint import seeded
from mlcl.training.context import Context, pick_device
from mlcl.training.embeddings import Datastore, SplitEncoder
from mlcl.training.evaluator import Predictor, classify
from mlcl.training.export.baseline import BaselineModel, load_baseline
from mlcl.training.export.model import ExportedModel
from mlcl.training.export.model_index import (
    DATASTORE,
    INDEX,
    MEMBER,
    NETWORK,
    Index,
    PredictorName,
    read_index,
)
from mlcl.training.export.network import Network, read_datastore, read_weights, rebuild_network
from mlcl.training.features.inputs import FeatureRows, SavedFeatures, sections
from mlcl.training.input_reader import Content, InputReader
from mlcl.training.run_files import JOB, TOKENIZER

DEVICES = ("auto", "cpu", "cuda")


def load_model(folder: str | Path, device: str | torch.device = "auto") -> ExportedModel:
    """Loads a model from a folder that `mlcl export` wrote; nothing outside of the folder is read.

    Args:
        folder: The folder.
        device: `auto`, `cpu` or `cuda`, or the device of the latter two.

    Raises:
        UserError: The folder is damaged or was written by a newer mlcl, there is no GPU for `cuda`, or a
            package that the encoder needs is not installed.

    Example:
        >>> mlcl.load_model("model").predict(["a text"]).labels
    """
    device = str(device)
    if device not in DEVICES:
        raise UserError("no such device", key="device", found=device, allowed=DEVICES)
    if not isinstance(folder, str | os.PathLike):
        raise UserError("no folder", key="folder", found=repr(folder)[:60], allowed="a path")
    folder = Path(folder).expanduser()
    index = read_index(folder)
    job = _read_job(folder / JOB)
    if job.baseline != index.baseline:
        problem, baseline = "not the job's baseline", index.baseline
        raise UserError(problem, file=folder / INDEX, key="baseline", found=baseline, allowed=job.baseline)
    context = Context(pick_device(device))
    if job.baseline is not None:
        return load_baseline(folder, index, job, context.device)
    return _load_network(folder, index, job, context)


def _load_network(folder: Path, index: Index, job: JobConfig, context: Context) -> NetworkModel:
    features = SavedFeatures.load(sections(job.encoder), folder, context.device)
    n_words, columns = None, features.columns
    reader: InputReader | SavedFeatures = features
    if not columns:
        has_tokens = ENCODERS[job.encoder.name].tokenizer is not None
        tokenizer = _read_tokenizer(folder / TOKENIZER) if has_tokens else None
        n_words = None if tokenizer is None else tokenizer.get_vocab_size()
        reader = InputReader.of(job, tokenizer)
    # The weights are then replaced, but a random buffer that is not persistent stays as it was in training.
    with seeded(job.train.seed):
        network = rebuild_network(
            job, index.space, n_words, columns, folder, probe="probe" in index.predictors
        )
    try:
        network.load_state_dict(read_weights(folder / NETWORK))
    except RuntimeError as error:
        raise UserError("weights of another model", file=folder / NETWORK, found=error) from None
    store = read_datastore(folder / DATASTORE, index.task, index.space.n_classes, network.dim)
    member = None
    if index.ensemble is not None:
        with only_reading():  # `_read_job` has run the plugin files if the baseline is in one
            member_job = baseline_job(job, str(job.evaluation.ensemble))
        shared_inputs = sections(job.encoder)
        member = load_baseline(folder / MEMBER, index, member_job, context.device, shared_inputs)
    return NetworkModel(index, job, network.to(context.device).eval(), reader, store, context, member)


class NetworkModel(ExportedModel):
    """An exported network with its predictors, its neighbours and, in an ensemble, its baseline.

    With an ensemble the baseline's probabilities of a row follow the encoder's outputs.
    """

    def __init__(
        self,
        index: Index,
        job: JobConfig,
        network: Network,
        reader: InputReader | SavedFeatures,
        store: Datastore,
        context: Context,
        member: BaselineModel | None,
    ) -> None:
        super().__init__(index, job, store)
        self._network, self._reader, self._store, self._context = network, reader, store, context
        self._member, self._encoded_width = member, network.dim + network.label_logits

    def outputs(self, inputs: Sequence[Content], places: Sequence[str] | None = None) -> Tensor:
        """Computes the encoder's outputs (M, O) float32 of one batch."""
        places = places or [f"row {row}" for row in range(len(inputs))]
        contents = self._reader.contents(inputs, places) if inputs else FeatureRows({})
        output_MO = torch.zeros(0, self._encoded_width)
        if inputs:
            rows = Rows(contents, {}, torch.arange(len(inputs)), AugmentConfig())
            encoder, precision = self._network.encoder, self.job.train.precision
            output_MO = SplitEncoder(encoder, len(inputs), precision, self._context).outputs(rows)
        if self._member is None:
            return output_MO
        known_inputs = contents.inputs if isinstance(contents, FeatureRows) else {}
        return torch.cat([output_MO, self._member.outputs_with_rows(inputs, places, known_inputs)], dim=1)

    def probabilities(self, output_MO: Tensor, predictor: PredictorName) -> Tensor:
        """Computes a predictor's probabilities from the outputs (M, O)."""
        setting = self.index.predictors[predictor]
        # Contiguous as in training: for other strides BLAS has other kernels, which round differently.
        encoded_MO = output_MO[:, : self._encoded_width].contiguous()
        if predictor in self._network.layers:
            return self._build_predictor(predictor)(encoded_MO)
        model = self._build_predictor(next(iter(self.index.predictors)))(encoded_MO)
        if self._member is not None and self.index.ensemble is not None:
            member = self._member.probabilities(output_MO[:, self._encoded_width :], predictor)
            model = Ensemble(**dict(self.index.ensemble))(self.index.task, model, member)
        if setting is None:
            return model
        neighbours, vote_setting = self._store.retrieve(encoded_MO, setting.k), Setting(**dict(setting))
        return self._store.blend(neighbours, model, vote_setting)

    def _build_predictor(self, name: PredictorName) -> Predictor:
        layer = self._network.layers[name]
        return lambda output_MO: classify(
            layer, self._network.features(output_MO, name), self.index.task, self._context
        )


def _read_job(file: Path) -> JobConfig:
    """Loads the job. Runs its plugin files only if its encoder or a baseline is unknown without them."""
    with only_reading():
        job = load_job(file)
    is_known = job.encoder.name in ENCODERS if job.baseline is None else job.baseline in BASELINES
    ensemble = job.evaluation.ensemble
    return job if is_known and (ensemble is None or ensemble in BASELINES) else load_job(file)


def _read_tokenizer(file: Path) -> Tokenizer:
    try:
        return load_tokenizer(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("not a tokenizer", file=file, found=error) from None
    except UserError as error:
        raise UserError(error.problem, file=file, found=error.found) from None
