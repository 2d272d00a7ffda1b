"""Fitted baselines as exported models: their files, and how they predict. No file is a pickle.

Shapes: M rows, P probabilities of a row.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.models.encoder import FeatureInput, InputName
from mlcl.training.baseline_fits import baseline_result
from mlcl.training.baselines import BASELINES, Baseline
from mlcl.training.baselines.jobs import inputs_of, join_features
from mlcl.training.checkpoint import unshare_tensors
from mlcl.training.context import pick_device
from mlcl.training.export.model import ExportedModel
from mlcl.training.export.model_index import NETWORK, Index, KnnSetting, PredictorName
from mlcl.training.export.network import read_weights
from mlcl.training.features.cache import FeatureCache
from mlcl.training.features.extractor import Matrix
from mlcl.training.features.inputs import SavedFeatures, save_inputs
from mlcl.training.input_reader import Content
from mlcl.training.job_data import JobData

Inputs = Mapping[InputName, FeatureInput]
"""The sections of frozen inputs by their names."""
NO_INPUTS: Inputs = {}


@dataclass(frozen=True)
class BaselineContents:
    """The fitted values and the frozen inputs of a job's baseline, to be written into an exported model."""

    job_data: JobData
    baseline: Baseline
    device: str
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, job_data: JobData) -> BaselineContents:
        """Reads the fit from the cache, or fits the baseline again, which gives an equal model.

        Raises UserError if the baseline cannot be rebuilt from tensors, as some plugins cannot.
        """
        name = str(job_data.job.baseline)
        device = pick_device(job_data.job.train.device).type
        result = baseline_result(job_data, device, test=False)
        if BASELINES[name].restore is None or not result.tensors:
            problem = "this baseline cannot be exported: it declares no tensors"
            raise UserError(problem, key="baseline", found=name)
        return cls(job_data, BASELINES[name], device, result.tensors)

    @property
    def predictors(self) -> dict[PredictorName, KnnSetting | None]:
        """The only predictor, `classifier`, without a setting of neighbours."""
        return {"classifier": None}

    def write(self, work: Path, shared_inputs: Inputs = NO_INPUTS) -> list[str]:
        """Writes tensors, and inputs not in `shared_inputs`, into `work`. Returns README sections: none."""
        save_file(unshare_tensors(self.tensors), work / NETWORK)
        inputs = _unshared_inputs(self.baseline, self.job_data.job, shared_inputs)
        cache = FeatureCache(self.job_data.cache, self.job_data.train, self.device)
        save_inputs(inputs, cache, work)
        return []


def load_baseline(
    folder: Path, index: Index, job: JobConfig, device: torch.device, shared_inputs: Inputs = NO_INPUTS
) -> BaselineModel:
    """Loads the baseline of an exported model. Raises UserError for damaged files and for another baseline's.

    Inputs that are in `shared_inputs` are not loaded: the caller passes their rows to `outputs_with_rows`.
    """
    baseline = BASELINES[str(job.baseline)]
    reader = SavedFeatures.load(_unshared_inputs(baseline, job, shared_inputs), folder, device)
    tensors = read_weights(folder / NETWORK)
    if baseline.restore is None:
        raise UserError("this baseline cannot be loaded", file=folder, key="baseline", found=job.baseline)
    try:
        restored = baseline.restore(index.task, index.space.n_classes, tensors)
    except (KeyError, ValueError, RuntimeError) as error:
        raise UserError("tensors of another baseline", file=folder / NETWORK, found=error) from None
    return BaselineModel(index, job, baseline, reader, restored)


def _unshared_inputs(baseline: Baseline, job: JobConfig, shared: Inputs) -> Inputs:
    inputs = dict(inputs_of(baseline, job).values())
    return {name: section for name, section in inputs.items() if shared.get(name) != section}


class BaselineModel(ExportedModel):
    """An exported baseline; its outputs (M, P) are the probabilities of a row, one after the other."""

    def __init__(
        self,
        index: Index,
        job: JobConfig,
        baseline: Baseline,
        reader: SavedFeatures,
        restored: Callable[[Any], Tensor],
    ) -> None:
        super().__init__(index, job, None)
        self._input_names = {part: name for part, (name, _) in inputs_of(baseline, job).items()}
        self._reader, self._predict = reader, restored

    def outputs(self, inputs: Sequence[Content], places: Sequence[str] | None = None) -> Tensor:
        """Computes the probabilities (M, P) float32 of one batch."""
        return self.outputs_with_rows(inputs, places or [f"row {row}" for row in range(len(inputs))], {})

    def outputs_with_rows(
        self, inputs: Sequence[Content], places: Sequence[str], known_rows: Mapping[str, Matrix]
    ) -> Tensor:
        """Computes probabilities (M, P) as `outputs`; `known_rows` are of inputs not read again."""
        if not inputs:
            return torch.zeros(0, math.prod(self._row_shape))
        rows = ChainMap(dict(self._reader.contents(inputs, places).inputs), dict(known_rows))
        parts = {part: rows[name] for part, name in self._input_names.items()}
        return self._predict(join_features(parts, len(inputs))).flatten(1)

    def probabilities(self, output_MO: Tensor, _predictor: PredictorName) -> Tensor:
        """Returns the probabilities in the shape of the task."""
        return output_MO.reshape(-1, *self._row_shape)

    @property
    def _row_shape(self) -> tuple[int, ...]:
        space = self.index.space
        return (len(space.aspects), space.n_classes) if space.aspects else (space.n_classes,)
