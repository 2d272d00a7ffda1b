"""Tokenizers: a word vocabulary made from training texts, or a Hugging Face encoder's own.

Both are a `tokenizers.Tokenizer`, so one JSON text holds each of them whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from mlcl.errors import UserError

__all__ = ["PAD", "UNK", "Tokenizer", "hugging_face_tokenizer", "load_tokenizer", "train_word_tokenizer"]

PAD, UNK = "[PAD]", "[UNK]"


def train_word_tokenizer(texts: Iterable[str], vocabulary: int, min_frequency: int = 1) -> Tokenizer:
    """A tokenizer over the most frequent words and punctuation marks of `texts`, lower-cased.

    `vocabulary` counts [PAD] (id 0) and [UNK] (id 1). The same texts give the same vocabulary.
    """
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNK))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocabulary, min_frequency=min_frequency, special_tokens=[PAD, UNK], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.enable_padding(pad_id=0, pad_token=PAD)
    return tokenizer


def load_tokenizer(json_text: str) -> Tokenizer:
    """The tokenizer that `tokenizer.to_str()` wrote. Raises UserError for anything else."""
    try:
        return Tokenizer.from_str(json_text)
    except Exception as error:  # the library raises nothing narrower
        raise UserError("not a tokenizer", found=error) from None


def hugging_face_tokenizer(name_or_folder: str) -> Tokenizer:
    """The fast tokenizer of a Hugging Face encoder, with its special tokens and its padding id.

    Raises UserError without the package transformers, for an unknown name and for a tokenizer without a fast
    form.
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
        loaded = AutoTokenizer.from_pretrained(name_or_folder, use_fast=True, trust_remote_code=False)
    except Exception as error:  # a torn file ends in whatever its reader stumbles over
        raise UserError("no tokenizer there", key="encoder.model", found=error) from None
    if not getattr(loaded, "is_fast", False):
        raise UserError("this tokenizer has no fast form", key="encoder.model", found=name_or_folder)
    tokenizer: Tokenizer = loaded.backend_tokenizer
    # Decoders such as Llama have no padding token; the mask hides whichever id stands there.
    known = (loaded.pad_token_id, loaded.eos_token_id, 0)
    pad_id = next(id for id in known if id is not None)
    tokenizer.enable_padding(pad_id=pad_id, pad_token=str(loaded.convert_ids_to_tokens(pad_id)))
    return tokenizer
