"""The extractor of texts that returns means of fixed vectors of tokens, from the package wordllama.

The vectors and the tokenizer are read from the package's files. The package is not imported: it would ask a
hub for the tokenizer.

Shapes: N texts, V tokens of the vocabulary, D columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from mlcl.data import Tokenizer, encode, load_tokenizer
from mlcl.errors import UserError
from mlcl.models.encoders.features import WordsInput
from mlcl.training.features.extractor import ONE_BY_ONE, BatchRun, Contents, Kind
from mlcl.training.precision import Precision

PACKAGE = "wordllama"
PACKAGE_FILES = ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json")
TENSOR = "embedding.weight"
VECTORS, TOKENIZER = "vectors.safetensors", "tokenizer.json"


@dataclass(frozen=True, eq=False)
class Words:
    """x_n = the mean of the vectors of text n's first `max_length` tokens, (D,) float32."""

    vector_VD: Tensor
    tokenizer: Tokenizer
    max_length: int

    @property
    def columns(self) -> int:
        """The number of columns D."""
        return int(self.vector_VD.shape[1])

    def __call__(self, contents: Sequence[str], _: BatchRun = ONE_BY_ONE) -> NDArray[np.float32]:
        """Returns the rows (N, D) float32 of texts."""
        tokens = encode(self.tokenizer, contents, self.max_length)
        ids, offsets = torch.from_numpy(tokens.tokens).long(), torch.from_numpy(tokens.offsets)
        rows_ND = F.embedding_bag(ids, self.vector_VD.float(), offsets, mode="mean", include_last_offset=True)
        result: NDArray[np.float32] = rows_ND.numpy()
        return result

    def save(self, folder: Path) -> None:
        """Writes the vectors and the tokenizer."""
        save_file({TENSOR: self.vector_VD}, folder / VECTORS)
        (folder / TOKENIZER).write_text(self.tokenizer.to_str(), encoding="utf-8")


def _fit(section: WordsInput, _: Contents | None, __: torch.device, ___: Precision) -> Words:
    vectors, tokenizer = _find_files()
    tree = json.loads(tokenizer.read_text(encoding="utf-8"))
    tree["post_processor"] = None  # it would begin every text with the same special token
    return Words(load_file(vectors)[TENSOR], load_tokenizer(json.dumps(tree)), section.max_length)


def _load(section: WordsInput, folder: Path, _: torch.device) -> Words:
    tokenizer = load_tokenizer((folder / TOKENIZER).read_text(encoding="utf-8"))
    return Words(load_file(folder / VECTORS)[TENSOR], tokenizer, section.max_length)


def _find_files() -> tuple[Path, Path]:
    """Returns the files of the vectors and the tokenizer. Raises UserError if the package lacks them."""
    spec = find_spec(PACKAGE)
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path(PACKAGE)
    vectors, tokenizer = (folder / name for name in PACKAGE_FILES)
    if not (vectors.is_file() and tokenizer.is_file()):
        problem, allowed = f"this input needs the files of the package {PACKAGE}", "pip install 'mlcl[words]'"
        raise UserError(problem, key="encoder.inputs", found="words", allowed=allowed)
    return vectors, tokenizer


def _state(_: WordsInput) -> object:
    _find_files()
    return {PACKAGE: version(PACKAGE)}


WORDS = Kind(_fit, _load, _state)
