"""Reads frozen inputs: the rows of a job's splits from the cache, or an exported model's rows from contents.

Shapes: N rows, B rows of a batch, F columns of an input, T entries of the fullest row of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mlcl.config import JobConfig
from mlcl.config.encoder_section import EncoderConfig
from mlcl.data import Split
from mlcl.errors import UserError
from mlcl.models import ENCODERS
from mlcl.models.encoder import FeatureInput, InputName
from mlcl.models.encoders.features import ImageInput
from mlcl.training.context import pick_device
from mlcl.training.features.cache import EXTRACTORS, FeatureCache
from mlcl.training.features.extractor import Extractor, Matrix
from mlcl.training.input_reader import Content, decode_contents, read_texts

FEATURES = "features"
"""The folder in an exported model with a subfolder for each frozen input."""


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """The rows (N, F) of each frozen input by its name, in memory or memory-mapped, dense or sparse."""

    inputs: Mapping[str, Matrix]

    def __len__(self) -> int:
        return int(next(iter(self.inputs.values())).shape[0])

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Returns the encoder's inputs for the rows `indices` (B,).

        A dense input is NAME (B, F); a sparse one is the pair NAME_columns and NAME_values (B, T), padded.
        """
        rows_B, batch = indices.numpy(), {}
        for name, matrix in self.inputs.items():
            if isinstance(matrix, np.ndarray):
                batch[name] = torch.from_numpy(np.array(matrix[rows_B]))
            else:
                batch[f"{name}_columns"], batch[f"{name}_values"] = _pad_rows(matrix, rows_B)
        return batch


def _pad_rows(matrix: Any, rows_B: Any) -> tuple[Tensor, Tensor]:
    part = matrix[rows_B]
    length_B = np.diff(part.indptr)
    filled_BT = np.arange(max(1, int(length_B.max(initial=0)))) < length_B[:, None]
    column_BT, value_BT = np.zeros(filled_BT.shape, np.int32), np.zeros(filled_BT.shape, np.float32)
    column_BT[filled_BT], value_BT[filled_BT] = part.indices, part.data
    return torch.from_numpy(column_BT), torch.from_numpy(value_BT)


def sections(encoder: EncoderConfig) -> Mapping[InputName, FeatureInput]:
    """Returns the sections of an encoder's frozen inputs by their names; empty for an encoder without any."""
    frozen = ENCODERS[encoder.name].frozen
    return {} if frozen is None else frozen(encoder)


@dataclass(frozen=True)
class FrozenInputs:
    """The frozen inputs of a job, by extractors that are fitted to its training rows."""

    sections: Mapping[InputName, FeatureInput]
    cache: FeatureCache

    @classmethod
    def of(cls, job: JobConfig, train: Split, cache: Path) -> FrozenInputs | None:
        """Fits a job's extractors; returns None without frozen inputs. Raises UserError for a bad input."""
        inputs = sections(job.encoder)
        if not inputs:
            return None
        features = FeatureCache(cache, train, pick_device(job.train.device).type)
        for name, section in inputs.items():
            if not features.entry(name, section, train).exists():
                features.extractor(name, section)
        return cls(inputs, features)

    def rows(self, split: Split) -> FeatureRows:
        """Returns the rows of a split for all inputs."""
        return FeatureRows(
            {name: self.cache.rows(name, section, split) for name, section in self.sections.items()}
        )

    @property
    def columns(self) -> dict[str, int]:
        """The number of columns of each input."""
        return {name: rows.shape[1] for name, rows in self.rows(self.cache.train).inputs.items()}


def save_inputs(inputs: Mapping[InputName, FeatureInput], cache: FeatureCache, folder: Path) -> None:
    """Writes the extractors of inputs, fitted to the training rows, into an exported model's folder."""
    for name, section in inputs.items():
        (folder / FEATURES / name).mkdir(parents=True)
        cache.extractor(name, section).save(folder / FEATURES / name)


@dataclass(frozen=True)
class SavedFeatures:
    """The extractors of an exported model's frozen inputs."""

    sections: Mapping[InputName, FeatureInput]
    extractors: Mapping[InputName, Extractor]

    @classmethod
    def load(
        cls, inputs: Mapping[InputName, FeatureInput], folder: Path, device: torch.device
    ) -> SavedFeatures:
        """Loads the extractors that `save_inputs` wrote. Raises UserError for damaged or missing files."""
        extractors = {}
        for name, section in inputs.items():
            try:
                extractors[name] = EXTRACTORS[name].load(section, folder / FEATURES / name, device)
            except (OSError, ValueError, KeyError, RuntimeError) as error:
                raise UserError("not a saved input", file=folder / FEATURES / name, found=error) from None
        return cls(inputs, extractors)

    @property
    def columns(self) -> dict[str, int]:
        """The number of columns of each input."""
        return {str(name): extractor.columns for name, extractor in self.extractors.items()}

    def contents(self, contents: Sequence[Content], places: Sequence[str]) -> FeatureRows:
        """Returns the rows of all inputs. Raises UserError, with its entry of `places`, for a bad content."""
        inputs = {name: self._read_input(name, contents, places) for name in self.sections}
        return FeatureRows({name: extract(inputs[name]) for name, extract in self.extractors.items()})

    def _read_input(self, name: InputName, contents: Sequence[Content], places: Sequence[str]) -> object:
        section = self.sections[name]
        if section.modality == "text":
            return read_texts(contents, places)
        if isinstance(section, ImageInput):
            return decode_contents(contents, places, section.image_size)
        return _read_vectors(contents, places, self.extractors[name].columns)


def _read_vectors(contents: Sequence[Content], places: Sequence[str], columns: int) -> object:
    rows = np.zeros((len(contents), columns), np.float32)
    for row, (vector, place) in enumerate(zip(contents, places, strict=True)):
        try:
            values = np.asarray(vector, np.float32)
        except (TypeError, ValueError) as error:
            raise UserError(f"not a vector at {place}", key="vectors", found=error) from None
        if values.shape != (columns,) or not np.isfinite(values).all():
            problem, actual = f"not a vector of finite numbers at {place}", f"shape {list(values.shape)}"
            raise UserError(problem, key="vectors", found=actual, allowed=f"[{columns}]")
        rows[row] = values
    return rows
