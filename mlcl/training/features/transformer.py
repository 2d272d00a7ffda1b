"""The extractor of texts that returns mean token states of a frozen Hugging Face model.

Shapes: N texts, D the model's hidden size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from mlcl.data import Tokenizer, encode, hugging_face_tokenizer, load_tokenizer
from mlcl.errors import UserError
from mlcl.models import model_folder
from mlcl.models.encoders.features import TransformerInput
from mlcl.models.encoders.transformer import TextTransformer as Pooled
from mlcl.models.pretrained import load_pretrained, rebuild_pretrained, save_config
from mlcl.training.features.extractor import (
    ONE_BY_ONE,
    ROWS_AT_ONCE,
    BatchRun,
    Contents,
    Kind,
    freeze,
    outputs,
    save_weights,
)
from mlcl.training.precision import Precision
from mlcl.unit_rows import unit_rows

WEIGHTS, TOKENIZER, PRECISION = "weights.safetensors", "tokenizer.json", "precision.json"
BLOCK = 1024
"""The number of rows that are sorted by length together, so that a row's padding depends on its block alone.
"""


@dataclass(frozen=True)
class Transformer:
    """x_n = the mean of the last layer's states over the tokens of text n, without padding, (D,) float32.

    With `unit` x_n is divided by its Euclidean length. An exported model keeps the `precision` in which the
    training rows were computed, so that rows are equal on another processor.
    """

    network: Pooled
    tokenizer: Tokenizer
    max_length: int
    device: torch.device
    precision: Precision
    unit: bool = False

    @property
    def columns(self) -> int:
        """The number of columns D."""
        return self.network.dim

    def __call__(self, contents: Sequence[str], run: BatchRun = ONE_BY_ONE) -> NDArray[np.float32]:
        """Returns the rows (N, D) float32 of texts."""
        shape = (len(contents), self.columns)
        row_ND = outputs(self.network, self._batches(contents), shape, self.device, self.precision, run)
        return unit_rows(torch.from_numpy(row_ND)).numpy() if self.unit else row_ND

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], dict[str, Tensor]]]:
        tokens = encode(self.tokenizer, texts, self.max_length)
        lengths = np.diff(tokens.offsets)
        for first in range(0, len(texts), BLOCK):
            order = first + np.argsort(lengths[first : first + BLOCK], kind="stable")
            for start in range(0, len(order), ROWS_AT_ONCE):
                rows = order[start : start + ROWS_AT_ONCE]
                yield rows, tokens.batch(torch.from_numpy(rows))

    def save(self, folder: Path) -> None:
        """Writes a copy of the model: configuration, weights, tokenizer and precision."""
        save_config(self.network, folder)
        save_weights(self.network, folder / WEIGHTS)
        (folder / TOKENIZER).write_text(self.tokenizer.to_str(), encoding="utf-8")
        (folder / PRECISION).write_text(json.dumps(self.precision))


def _fit(
    section: TransformerInput, _: Contents | None, device: torch.device, precision: Precision
) -> Transformer:
    with _rename_keys():
        folder = model_folder(section.model)
        network = Pooled(load_pretrained(folder), "mean", section.max_length)
        tokenizer = hugging_face_tokenizer(str(folder))
    freeze(network, device)
    return Transformer(network, tokenizer, section.max_length, device, precision, section.unit)


def _load(section: TransformerInput, folder: Path, device: torch.device) -> Transformer:
    network = Pooled(rebuild_pretrained(folder), "mean")
    network.load_state_dict(load_file(folder / WEIGHTS))
    freeze(network, device)
    tokenizer = load_tokenizer((folder / TOKENIZER).read_text(encoding="utf-8"))
    precision: Precision = json.loads((folder / PRECISION).read_text())
    return Transformer(network, tokenizer, section.max_length, device, precision, section.unit)


def _state(section: TransformerInput) -> object:
    """Returns names, sizes and dates of the model's files: hashing gigabytes of weights would be slow."""
    with _rename_keys():
        files = sorted(file for file in model_folder(section.model).iterdir() if file.is_file())
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


@contextmanager
def _rename_keys() -> Iterator[None]:
    """Replaces `encoder.` in the keys of errors with `encoder.transformer.`, where this input's keys are."""
    try:
        yield
    except UserError as error:
        key = str(error.key).replace("encoder.", "encoder.transformer.")
        raise error.with_fields(key=key) from error


TRANSFORMER = Kind(_fit, _load, _state, network=True)
