"""Tokenizers, and the token ids of many texts, encoded once and memory-mapped from a cache.

A tokenizer has a word vocabulary made from training texts, or is that of a Hugging Face encoder. Both are a
`tokenizers.Tokenizer`, so either can be stored as one JSON text.

Shapes: N texts, B texts of a batch, T tokens of the longest of them, E tokens in all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from mlcl.data.cache_entries import read_cached
from mlcl.data.split import Split
from mlcl.errors import UserError

__all__ = ["PAD", "UNK", "Tokenizer", "hugging_face_tokenizer", "load_tokenizer", "train_word_tokenizer"]

PAD, UNK = "[PAD]", "[UNK]"
ENCODED_AT_ONCE = 8_192
"""The number of texts in one call of the tokenizer, which encodes them in parallel."""


def train_word_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Trains a tokenizer whose vocabulary is the most frequent words and punctuation marks, lower-cased.

    `vocabulary` is its largest size, including [PAD] (id 0) and [UNK] (id 1). Equal texts give equal
    vocabularies.
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNK))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    specials = [PAD, UNK]
    trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.enable_padding(pad_id=0, pad_token=PAD)
    return tokenizer


def load_tokenizer(json_text: str) -> Tokenizer:
    """Loads a tokenizer from the JSON text of `tokenizer.to_str()`. Raises UserError for any other text."""
    try:
        return Tokenizer.from_str(json_text)
    except Exception as error:  # the library raises nothing narrower
        raise UserError("not a tokenizer", found=error) from None


def hugging_face_tokenizer(name_or_folder: str) -> Tokenizer:
    """Loads the fast tokenizer of a Hugging Face encoder, with its special tokens and its padding id.

    Without a padding token, texts are padded with the end-of-sequence token or id 0. Raises UserError if the
    package transformers is missing, for an unknown name, and for a tokenizer without a fast implementation.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise UserError(
            "this encoder needs the package transformers",
            key="encoder.name",
            allowed="pip install 'mlcl[transformers]'",
        ) from None
    try:
        fast_tokenizer = AutoTokenizer.from_pretrained(name_or_folder, use_fast=True, trust_remote_code=False)
    except Exception as error:  # a damaged file may raise any error
        raise UserError("no tokenizer there", key="encoder.model", found=error) from None
    if not getattr(fast_tokenizer, "is_fast", False):
        raise UserError("this tokenizer has no fast version", key="encoder.model", found=name_or_folder)
    return padded_tokenizer(fast_tokenizer)


def padded_tokenizer(fast_tokenizer: Any) -> Tokenizer:
    """Returns the tokenizer that a fast tokenizer of Hugging Face wraps, with padding enabled."""
    tokenizer: Tokenizer = fast_tokenizer.backend_tokenizer
    # Decoders such as Llama have no padding token; the attention mask hides the id used instead.
    candidate_ids = (fast_tokenizer.pad_token_id, fast_tokenizer.eos_token_id, 0)
    pad_id = next(token_id for token_id in candidate_ids if token_id is not None)
    tokenizer.enable_padding(pad_id=pad_id, pad_token=str(fast_tokenizer.convert_ids_to_tokens(pad_id)))
    return tokenizer


@dataclass(frozen=True, eq=False)
class TokenRows:
    """Token ids of texts: `tokens[offsets[i]:offsets[i + 1]]` are those of text i. `pad_id` pads batches."""

    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]
    pad_id: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Returns the texts at `indices` as `input_ids` (B, T) int64, padded to the longest of them.

        `attention_mask` (B, T) bool is true for tokens and false for padding.
        """
        rows_B = indices.numpy()
        start_B = self.offsets[rows_B]
        length_B = self.offsets[rows_B + 1] - start_B
        position_T = np.arange(max(1, int(length_B.max(initial=0))))
        mask_BT = position_T < length_B[:, None]
        ids_BT = np.full(mask_BT.shape, self.pad_id, dtype=np.int64)
        ids_BT[mask_BT] = self.tokens[(start_B[:, None] + position_T)[mask_BT]]
        return {"input_ids": torch.from_numpy(ids_BT), "attention_mask": torch.from_numpy(mask_BT)}


def encode(
    tokenizer: Tokenizer, texts: Split | Sequence[str], max_length: int, cache: Path | None = None
) -> TokenRows:
    """Encodes the texts of a split, or any texts, to at most `max_length` ids each.

    A text without a token becomes [UNK], or padding if the tokenizer has no [UNK]. With the folder `cache`,
    the ids are computed once for each tokenizer, texts and length, and memory-mapped afterwards. A split is
    identified by its `fingerprint`, so that its texts are not read if their ids are in the cache.
    """
    if cache is None:
        return _encode(tokenizer, _as_texts(texts), max_length)
    key = texts.fingerprint if isinstance(texts, Split) else _hash(*texts)
    folder = cache / "tokens" / _hash(tokenizer.to_str(), key, str(max_length))

    def write(work_folder: Path) -> None:
        rows = _encode(tokenizer, _as_texts(texts), max_length)
        np.save(work_folder / "offsets.npy", rows.offsets)
        np.save(work_folder / "tokens.npy", rows.tokens)

    def read(folder: Path) -> TokenRows:
        tokens = np.load(folder / "tokens.npy", mmap_mode="r")
        return TokenRows(np.load(folder / "offsets.npy"), tokens, pad_id(tokenizer))

    return read_cached(folder, write, read, is_folder=True)


def pad_id(tokenizer: Tokenizer) -> int:
    """Returns the id of the padding token; 0 where the tokenizer has none."""
    if tokenizer.padding is not None:
        return int(tokenizer.padding["pad_id"])
    return tokenizer.token_to_id(PAD) or 0


def _as_texts(texts: Split | Sequence[str]) -> Sequence[str]:
    return texts.texts() if isinstance(texts, Split) else texts


def _encode(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> TokenRows:
    encoder = Tokenizer.from_str(tokenizer.to_str())
    encoder.no_padding()
    encoder.enable_truncation(max_length)
    unknown_id = encoder.token_to_id(UNK)
    empty_ids = [pad_id(tokenizer) if unknown_id is None else unknown_id]
    counts, chunks = [np.zeros(1, dtype=np.int64)], [np.zeros(0, dtype=np.int32)]
    for start in range(0, len(texts), ENCODED_AT_ONCE):
        encodings = encoder.encode_batch_fast(list(texts[start : start + ENCODED_AT_ONCE]))
        ids = [encoding.ids or empty_ids for encoding in encodings]
        counts.append(np.fromiter(map(len, ids), dtype=np.int64, count=len(ids)))
        chunks.append(np.concatenate([np.asarray(row, dtype=np.int32) for row in ids]))
    return TokenRows(np.cumsum(np.concatenate(counts)), np.concatenate(chunks), pad_id(tokenizer))


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
