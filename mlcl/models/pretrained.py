"""Hugging Face models: how they are loaded, and what of them trains.

Shapes: B texts, T tokens, D the model's hidden size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mlcl.errors import UserError
from mlcl.models.lora import Lora, add_lora
from mlcl.models.model_folder import model_folder

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
SAFE = {"local_files_only": True, "trust_remote_code": False}
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
POSITIONS = ("position_embeddings", "embed_positions", "wpe")
"""What they call the vectors of learned positions."""


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

    Raises UserError for a model that is missing, damaged, pickled, quantized or none of text, for an option
    that it does not have, and where transformers or peft is not installed.
    """
    if lora is None and weights != "float32":
        raise UserError(
            "trained weights are float32; others go with lora", key="encoder.weights", found=weights
        )
    network: nn.Module = _load(model_folder(model), dropout, DTYPES[weights])
    _fit(network, lora)
    if gradient_checkpointing:
        _recompute_layers(network)
    return network


def rebuild_pretrained(
    folder: Path, *, lora: Lora | None = None, weights: Literal["float32", "bf16"] = "float32"
) -> nn.Module:
    """The network that a folder's config.json describes, with weights at random: the caller has all of them.

    Raises UserError for a configuration that is damaged or none of text, and where transformers or peft is
    not installed.
    """
    config, auto_model = _configuration(folder, None)
    with _loading(folder):
        network: nn.Module = auto_model.from_config(config, dtype=DTYPES[weights], trust_remote_code=False)
    _fit(network, lora)
    return network


def save_config(encoder: Any, folder: Path) -> None:
    """Writes the config.json from which `rebuild_pretrained` makes the network of an encoder again."""
    encoder.network.config.to_json_file(folder / "config.json")


def _fit(network: nn.Module, lora: Lora | None) -> None:
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = nn.Identity()
    if lora is not None:
        add_lora(network, lora)


def freeze_layers(network: nn.Module, freeze: bool | int) -> None:
    """Freezes all weights (True), or those of the embeddings and of the first `freeze` layers.

    Dropout stays on in frozen layers: two passes are still two views. Raises UserError for more layers than
    there are.
    """
    if freeze is False:
        return
    config: Any = network.config
    layers = int(config.num_hidden_layers)
    if freeze > layers:
        raise UserError("more layers than there are", key="encoder.freeze", found=freeze, allowed=layers)
    blocks = next(m for m in network.modules() if isinstance(m, nn.ModuleList) and len(m) == layers)
    trained = {id(p) for block in blocks[layers if freeze is True else freeze :] for p in block.parameters()}
    for parameter in network.parameters():
        # In order: embeddings, layers, and what follows the layers.
        if id(parameter) in trained:
            break
        parameter.requires_grad = False


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
        if not (name.endswith(POSITIONS) and isinstance(module, nn.Embedding)):
            continue
        # RoBERTa counts positions from behind its padding id, OPT from an offset.
        first = 0 if module.padding_idx is None else module.padding_idx + 1
        longest = module.num_embeddings - max(first, int(getattr(module, "offset", 0)))
        if tokens > longest:
            raise UserError("more tokens than this model reads", key=key, found=tokens, allowed=longest)


def _load(folder: Path, dropout: float | None, dtype: torch.dtype) -> Any:
    config, auto_model = _configuration(folder, dropout)
    with _loading(folder):
        network, report = auto_model.from_pretrained(
            folder, config=config, dtype=dtype, use_safetensors=True, output_loading_info=True, **SAFE
        )
        words = network.get_input_embeddings()
    if not isinstance(words, nn.Embedding):
        raise _no_text(config, folder)
    # What is not in the file starts at random, and would train without a word.
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise UserError("weights are missing", file=folder, key="encoder.model", found=missing[:5])
    return network


@contextlib.contextmanager
def _loading(folder: Path) -> Iterator[None]:
    """Turns what the library raises over a folder into one UserError, and silences its log and its bars."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # a configuration holds anything, and so fails anywhere
        reason = str(error) or type(error).__name__
        raise UserError("cannot load this model", file=folder, key="encoder.model", found=reason) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _configuration(folder: Path, dropout: float | None) -> tuple[Any, Any]:
    """The configuration in a folder, and the class that makes networks from one."""
    try:
        from transformers import AutoConfig, AutoModel
    except (ImportError, RuntimeError) as error:
        raise UserError(
            "this encoder needs the package transformers: pip install 'mlcl[transformers]'",
            key="encoder.name",
            found=str(error),
        ) from error
    with _loading(folder):
        config: Any = AutoConfig.from_pretrained(folder, **SAFE)
    if getattr(config, "is_encoder_decoder", False) or not hasattr(config, "hidden_size"):
        raise _no_text(config, folder)
    if getattr(config, "quantization_config", None) is not None:
        raise UserError("these weights are quantized", file=folder, key="encoder.model")
    config.use_cache = False
    names = [] if dropout is None else [name for name in DROPOUTS if hasattr(config, name)]
    if dropout is not None and not names:
        raise UserError("this model has no dropout", key="encoder.dropout", found=config.model_type)
    for name in names:
        setattr(config, name, dropout)
    return config, AutoModel


def _no_text(config: Any, folder: Path) -> UserError:
    return UserError(
        "neither a text encoder nor a decoder", file=folder, key="encoder.model", found=config.model_type
    )


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
