"""Tiny Hugging Face models with their tokenizers, created in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

transformers = pytest.importorskip("transformers")

KINDS = ("bert", "roberta", "llama")
SPECIAL = {
    "bert": {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
    "roberta": {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    "llama": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
}
"""The special tokens of each kind in the order of their ids; like the real one, Llama has no padding."""
WORDS = ("ball", "run", "vote", "law", *(f"noise{i}" for i in range(12)))
TEMPLATES = {"bert": "[CLS] $A [SEP]", "roberta": "<s> $A </s>", "llama": "<s> $A"}
POSITIONS = 32
"""The number of tokens that bert and roberta can read."""
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}

FILES = ("config.json", "model.safetensors", "tokenizer.json")
"""The files that every model has."""


def with_files(folder, names=FILES):
    """Creates a folder with empty files, such as those of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


def tiny_model(folder: Path, kind: str) -> Path:
    """Writes a model of two layers with seeded weights as safetensors, and a tokenizer of whole words."""
    tokenizer = word_tokenizer(kind)
    ids = {f"{name}_id": tokenizer.convert_tokens_to_ids(token) for name, token in SPECIAL[kind].items()}
    options = {**SIZES, "vocab_size": len(tokenizer), **ids}
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        if kind == "bert":
            config = transformers.BertConfig(**options, max_position_embeddings=POSITIONS)
            model = transformers.BertModel(config)
        elif kind == "roberta":
            # Positions begin after the padding id, which is 1.
            config = transformers.RobertaConfig(**options, max_position_embeddings=POSITIONS + 2)
            model = transformers.RobertaModel(config)
        else:
            config = transformers.LlamaConfig(**options, num_key_value_heads=1, max_position_embeddings=64)
            model = transformers.LlamaModel(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save(model: Any, folder: Path) -> Path:
    """Saves a model, with a tokenizer beside it."""
    model.save_pretrained(folder)
    word_tokenizer("bert").save_pretrained(folder)
    return folder


def word_tokenizer(kind: str) -> Any:
    special_tokens = SPECIAL[kind]
    ids = {token: i for i, token in enumerate((*special_tokens.values(), *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=special_tokens["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    template = TEMPLATES[kind]
    template_tokens = [(token, ids[token]) for token in special_tokens.values() if token in template]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=template_tokens)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special_tokens)


def token_batch(lengths: list[int], total: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns ids of words (B, T) and their mask, with padding (id 1) on the right."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, 4 + len(WORDS) - 1, (len(lengths), total), generator=generator)
    mask = torch.arange(total) < torch.tensor(lengths).unsqueeze(1)
    return torch.where(mask, ids, 1), mask
