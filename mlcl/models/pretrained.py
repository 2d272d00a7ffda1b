"""Hugging Face models: how they are loaded, and what of them trains.

Shapes: B texts, T tokens, D the model's hidden size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mlcl.errors import UserError
from mlcl.models.lora import Lora, add_lora
from mlcl.models.model_folder import model_folder

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "hidden_dropout",
    "embedding_dropout",
    "mlp_dropout",
    "embd_pdrop",
    "resid_pdrop",
    "attn_pdrop",
)
"""What families of models call the dropout of their hidden states and of their attention weights."""


def load_pretrained(
    model: str | Path,
    *,
    dropout: float | None = None,
    lora: Lora | None = None,
    weights: Literal["float32", "bf16"] = "float32",
    gradient_checkpointing: bool = False,
) -> nn.Module:
    """A pretrained encoder or decoder without a head, see `model_folder` for `model`.

    `dropout` takes the place of all that the model has on hidden states and attention weights. With `lora`
    adapters alone train, and the frozen weights have the type `weights`; without it all weights train, in
    float32. `gradient_checkpointing` keeps each layer's input alone and computes the layer once more in the
    backward, with the same random numbers.

    The model's own code is never run and nothing is unpickled. A decoder keeps no keys and values, and a
    pooler is left out: it is not on the way to the token states.

    Raises UserError for a model that is missing, damaged, pickled or none of text, for an option that it does
    not have, and where transformers or peft is not installed.
    """
    if lora is None and weights != "float32":
        raise UserError(
            "trained weights are float32; others go with lora", key="encoder.weights", found=weights
        )
    network: nn.Module = _load(model_folder(model), dropout, DTYPES[weights])
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = nn.Identity()
    if lora is not None:
        add_lora(network, lora)
    if gradient_checkpointing:
        _recompute_layers(network)
    return network


def token_states(network: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """The last layer's states (B, T, D), at least float32, of ids (B, T) int64 and mask (B, T) bool."""
    h_BTD: Tensor = network(input_ids=input_ids, attention_mask=attention_mask.long()).last_hidden_state
    return h_BTD if h_BTD.dtype == torch.float64 else h_BTD.float()


def hidden_size(network: nn.Module) -> int:
    """D of a network that `load_pretrained` gave."""
    config: Any = network.config
    return int(config.hidden_size)


def check_length(network: nn.Module, tokens: int, key: str) -> None:
    """Raises UserError where `tokens` tokens are more than the network has learned positions for."""
    for name, module in network.named_modules():
        if not (name.endswith("position_embeddings") and isinstance(module, nn.Embedding)):
            continue
        # RoBERTa counts positions from behind its padding id.
        longest = module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
        if tokens > longest:
            raise UserError("more tokens than this model reads", key=key, found=tokens, allowed=longest)


def _load(folder: Path, dropout: float | None, dtype: torch.dtype) -> Any:
    auto_config, auto_model = _auto_classes()
    safe = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = auto_config.from_pretrained(folder, **safe)
        _configure(config, folder, dropout)
        network, report = auto_model.from_pretrained(
            folder, config=config, dtype=dtype, use_safetensors=True, output_loading_info=True, **safe
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError("cannot load this model", file=folder, key="encoder.model", found=reason) from error
    # What is not in the file starts at random, and would train without a word.
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise UserError("weights are missing", file=folder, key="encoder.model", found=missing[:5])
    return network


def _auto_classes() -> tuple[Any, Any]:
    try:
        from transformers import AutoConfig, AutoModel
    except (ImportError, RuntimeError) as error:
        raise UserError(
            "this encoder needs the package transformers: pip install 'mlcl[transformers]'",
            key="encoder.name",
            found=str(error),
        ) from error
    return AutoConfig, AutoModel


def _configure(config: Any, folder: Path, dropout: float | None) -> None:
    if getattr(config, "is_encoder_decoder", False) or not hasattr(config, "hidden_size"):
        raise UserError(
            "neither a text encoder nor a decoder", file=folder, key="encoder.model", found=config.model_type
        )
    config.use_cache = False
    if dropout is None:
        return
    names = [name for name in DROPOUTS if hasattr(config, name)]
    if not names:
        raise UserError("this model has no dropout", key="encoder.dropout", found=config.model_type)
    for name in names:
        setattr(config, name, dropout)


def _recompute_layers(network: Any) -> None:
    try:
        # This also has the embeddings ask for a gradient: below adapters nothing else would.
        network.activation_checkpointing_enable({"use_reentrant": False})
    except ValueError as error:
        raise UserError(
            "this model cannot compute its layers once more",
            key="encoder.gradient_checkpointing",
            found=network.config.model_type,
        ) from error
