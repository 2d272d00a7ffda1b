"""Hugging Face models: their keys in a job, loading, frozen layers and low-rank adapters.

Shapes: B texts, T tokens, D the model's hidden size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from mlcl.config.section import Positive, Section
from mlcl.errors import UserError
from mlcl.models.model_folder import model_folder
from mlcl.models.unpadded import prepare_unpadded, unpadded_states

PACKAGES = ("transformers", "peft")
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
SAFE = {"local_files_only": True, "trust_remote_code": False}
DROPOUTS = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "hidden_dropout",
    "embedding_dropout", "mlp_dropout", "embd_pdrop", "resid_pdrop", "attn_pdrop",
)  # fmt: skip
"""The names that families of models give the dropout of hidden states and of attention weights."""
PADDING_CHANGES = ("convbert", "fnet", "funnel", "mobilebert", "nystromformer", "yoso")
"""The families of models in which a text's states depend on the padding behind it."""
AFTER_LAYERS = ("final_", "project_out")
"""The beginnings of names of weights that follow the layers, though OPT declares them before the layers."""
POSITIONS = ("position_embeddings", "embed_positions", "wpe")
"""The names that families of models give the embedding layer of learned positions."""


class LoraConfig(Section):
    """Low-rank adapters in place of training the pretrained weights (Hu et al. 2022)."""

    r: int = Field(16, ge=1, description="rank")
    alpha: Positive = Field(32.0, description="scale of an adapter, over its rank")
    dropout: float = Field(0.1, ge=0, lt=1, description="before an adapter")
    targets: tuple[str, ...] | Literal["all"] = Field(
        "all", description="names of the linear layers that get one; all: every linear layer"
    )


class PretrainedKeys(Section):
    """The keys of every encoder that is based on a Hugging Face model."""

    model: str = Field(description="folder, URI, package:NAME or hub name")
    dropout: float | None = Field(
        None, ge=0, lt=1, description="of hidden states and attention; default: the model's own"
    )
    lora: LoraConfig | None = Field(None, description="train adapters alone; default: all weights")
    weights: Literal["float32", "bf16"] = Field(
        "float32", description="of the frozen weights beside lora; trained ones are float32"
    )
    gradient_checkpointing: bool = Field(False, description="less memory for a second forward pass")
    freeze: bool | Annotated[int, Field(ge=0)] = Field(
        False, description="true: train no weight; a number: none of the embeddings and so many first layers"
    )

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if self.weights != "float32" and self.lora is None:
            raise ValueError("weights other than float32 go with lora: trained weights are float32")
        if self.freeze is not False and self.lora is not None:
            raise ValueError("lora trains no other weight: freeze goes without it")
        return self


def build_network(section: Section, folder: Path | None = None) -> nn.Module:
    """Builds the network of a section with `PretrainedKeys`, with its pretrained weights and frozen layers.

    With `folder`, the folder of an exported model, the weights are random and the caller loads them.
    """
    keys = cast(PretrainedKeys, section)
    if folder is not None:
        return rebuild_pretrained(folder, lora=keys.lora, weights=keys.weights)
    network = load_pretrained(
        keys.model,
        dropout=keys.dropout,
        lora=keys.lora,
        weights=keys.weights,
        gradient_checkpointing=keys.gradient_checkpointing,
    )
    freeze_layers(network, keys.freeze)
    return network


def network_without_weights(section: Section) -> nn.Module:
    """Builds the network of a section on the device `meta`: weights have shapes but no values.

    Raises UserError as `build_network`, except for what is wrong with the weights.
    """
    keys = cast(PretrainedKeys, section)
    with torch.device("meta"):
        network = rebuild_pretrained(
            model_folder(keys.model), dropout=keys.dropout, lora=keys.lora, weights=keys.weights
        )
    if keys.gradient_checkpointing:
        _recompute_layers(network)
    freeze_layers(network, keys.freeze)
    return network


def load_pretrained(
    model: str | Path,
    *,
    dropout: float | None = None,
    lora: LoraConfig | None = None,
    weights: Literal["float32", "bf16"] = "float32",
    gradient_checkpointing: bool = False,
) -> nn.Module:
    """Loads a pretrained text encoder or decoder without a head, see `PretrainedKeys` and `model_folder`.

    Code that comes with the model is never run and nothing is unpickled. A decoder caches no keys and values,
    and a pooler, which the token states do not need, is left out. With `gradient_checkpointing`, a layer's
    second computation repeats its dropout. Raises UserError if the model is missing, damaged, pickled,
    quantized, not a text model or one of `PADDING_CHANGES`, or does not support an option, or if a package is
    not installed.
    """
    folder = model_folder(model)
    config, auto_model = _load_configuration(folder, dropout)
    with _convert_errors(folder):
        network, report = auto_model.from_pretrained(
            folder,
            config=config,
            dtype=DTYPES[weights],
            use_safetensors=True,
            output_loading_info=True,
            **SAFE,
        )
        words = network.get_input_embeddings()
    if not isinstance(words, nn.Embedding):
        raise _unsuitable_error(config, folder)
    # Weights that are not in the file start at random, and would train unnoticed.
    if missing := sorted(name for name in report["missing_keys"] if "pooler" not in name):
        raise UserError("weights are missing", file=folder, key="encoder.model", found=missing[:5])
    _adapt_network(network, lora)
    if gradient_checkpointing:
        _recompute_layers(network)
    return cast(nn.Module, network)


def rebuild_pretrained(
    folder: Path,
    *,
    dropout: float | None = None,
    lora: LoraConfig | None = None,
    weights: Literal["float32", "bf16"] = "float32",
) -> nn.Module:
    """Builds the network that a folder's config.json describes, with random weights that the caller replaces.

    Raises UserError if the configuration is damaged, not of a text model or of one of `PADDING_CHANGES`, or
    does not support an option, and if transformers or peft is not installed.
    """
    config, auto_model = _load_configuration(folder, dropout)
    with _convert_errors(folder):
        network: nn.Module = auto_model.from_config(config, dtype=DTYPES[weights], trust_remote_code=False)
    _adapt_network(network, lora)
    return network


def save_config(encoder: Any, folder: Path) -> None:
    """Writes the config.json from which `rebuild_pretrained` builds the encoder's network."""
    encoder.network.config.to_json_file(folder / "config.json")


def _adapt_network(network: nn.Module, lora: LoraConfig | None) -> None:
    if isinstance(getattr(network, "pooler", None), nn.Module):
        network.pooler = nn.Identity()
    prepare_unpadded(network)
    if lora is not None:
        add_lora(network, lora)


def add_lora(network: nn.Module, lora: LoraConfig) -> None:
    """Adds low-rank adapters in float32 to linear layers, and freezes all other weights.

        W x becomes W x + (alpha / r) B A dropout(x); A and B alone train, B starts at 0.

    `lora.targets` names linear layers by their path in the network or the last parts of it.
    Source: Hu et al. 2022, LoRA: Low-Rank Adaptation of Large Language Models, Eq. 3 and section 4.1. The
    defaults are those of Similarity-Dissimilarity, appendix D, which does not say which layers get an
    adapter.

    Raises UserError if a target is no linear layer of the network, if there is no target, and if peft is not
    installed.
    """
    try:
        import peft
    except ImportError as error:
        raise UserError(
            "adapters need the package peft: pip install 'mlcl[lora]'", key="encoder.lora", found=str(error)
        ) from error
    targets = "all-linear" if lora.targets == "all" else _linear_layers(network, lora.targets)
    config = peft.LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets
    )
    peft.inject_adapter_in_model(config, network)
    for parameter in network.parameters():
        if parameter.requires_grad:
            # peft creates an adapter in the dtype of its weight; in bf16 small steps would be lost.
            parameter.data = parameter.data.float()


def _linear_layers(network: nn.Module, targets: tuple[str, ...]) -> list[str]:
    from transformers.pytorch_utils import Conv1D  # GPT-2's linear layer

    linear = [name for name, module in network.named_modules() if isinstance(module, (nn.Linear, Conv1D))]
    unknown = [t for t in targets if not any(f".{name}".endswith(f".{t}") for name in linear)]
    if unknown or not targets:
        raise UserError(
            "no such linear layer",
            key="encoder.lora.targets",
            found=unknown or "none",
            allowed=sorted({name.rpartition(".")[2] for name in linear}),
        )
    return list(targets)


def freeze_layers(network: nn.Module, freeze: bool | int) -> None:
    """Freezes all weights if `freeze` is True; a number freezes the embeddings and so many first layers.

    The number of all layers freezes the weights that follow the layers, too; False freezes nothing.
    Dropout stays on in frozen layers, so two passes still give two different views. Raises UserError if the
    network has fewer layers, if they share weights, or if their parts are in several lists.
    """
    if freeze is True:
        network.requires_grad_(False)
    if isinstance(freeze, bool):
        return
    config: Any = network.config
    layers = int(config.num_hidden_layers)
    if freeze > layers:
        raise UserError("more layers than there are", key="encoder.freeze", found=freeze, allowed=layers)
    lists = {n: m for n, m in network.named_modules() if isinstance(m, nn.ModuleList) and len(m) == layers}
    path, blocks = next(iter(lists.items()), ("", nn.ModuleList()))
    # ALBERT's layers share weights; XLM has one list of all attentions, and lists of the other parts.
    if not blocks or not set(blocks.modules()).issuperset(lists.values()):
        raise UserError("has no list of layers", key="encoder.freeze", found=freeze, allowed="true, false")
    trained_ids = {id(p) for block in blocks[freeze:] for p in block.parameters()}
    prefixes = tuple(f"{path[: path.rfind('.') + 1]}{name}" for name in AFTER_LAYERS)
    for name, parameter in network.named_parameters():
        # The order is: embeddings, layers, and all else that follows the layers.
        if id(parameter) in trained_ids:
            break
        parameter.requires_grad = freeze < layers and name.startswith(prefixes)


def token_states(network: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """Returns the last states (B, T, D), at least float32, of ids (B, T) int64 under a mask (B, T) bool."""
    h_BTD = unpadded_states(network, input_ids, attention_mask)
    if h_BTD is None:
        h_BTD = network(input_ids=input_ids, attention_mask=attention_mask.long()).last_hidden_state
    return h_BTD if h_BTD.dtype == torch.float64 else h_BTD.float()


def hidden_size(network: nn.Module) -> int:
    """Returns the hidden size D of a network from `load_pretrained`."""
    config: Any = network.config
    # OPT may project its states to another size.
    return int(getattr(config, "word_embed_proj_dim", None) or config.hidden_size)


def check_length(network: nn.Module, tokens: int, key: str) -> None:
    """Raises UserError for `key` if the network has learned positions for fewer than `tokens` tokens."""
    for name, module in network.named_modules():
        if not (name.endswith(POSITIONS) and isinstance(module, nn.Embedding)):
            continue
        # RoBERTa's first position follows its padding id; OPT's first position is its offset.
        first_position = 0 if module.padding_idx is None else module.padding_idx + 1
        max_tokens = module.num_embeddings - max(first_position, int(getattr(module, "offset", 0)))
        if tokens > max_tokens:
            raise UserError("more tokens than this model reads", key=key, found=tokens, allowed=max_tokens)


@contextlib.contextmanager
def _convert_errors(folder: Path) -> Iterator[None]:
    """Turns any error while a model loads from a folder into UserError, and silences transformers' output."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # a bad configuration may fail anywhere
        reason = str(error) or type(error).__name__
        raise UserError("cannot load this model", file=folder, key="encoder.model", found=reason) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _load_configuration(folder: Path, dropout: float | None) -> tuple[Any, Any]:
    """Returns the configuration in a folder, and the class of transformers that builds networks from it."""
    try:
        from transformers import AutoConfig, AutoModel
    except (ImportError, RuntimeError) as error:
        raise UserError(
            "this encoder needs the package transformers: pip install 'mlcl[transformers]'",
            key="encoder.name",
            found=str(error),
        ) from error
    with _convert_errors(folder):
        config: Any = AutoConfig.from_pretrained(folder, **SAFE)
    if getattr(config, "is_encoder_decoder", False) or not hasattr(config, "hidden_size"):
        raise _unsuitable_error(config, folder)
    if config.model_type in PADDING_CHANGES:
        model_type = config.model_type
        raise UserError("padding changes its outputs", file=folder, key="encoder.model", found=model_type)
    if getattr(config, "quantization_config", None) is not None:
        raise UserError("these weights are quantized", file=folder, key="encoder.model")
    config.use_cache = False
    names = [] if dropout is None else [name for name in DROPOUTS if hasattr(config, name)]
    if dropout is not None and not names:
        raise UserError("this model has no dropout", key="encoder.dropout", found=config.model_type)
    for name in names:
        setattr(config, name, dropout)
    return config, AutoModel


def _unsuitable_error(config: Any, folder: Path) -> UserError:
    return UserError(
        "neither a text encoder nor a decoder", file=folder, key="encoder.model", found=config.model_type
    )


def _recompute_layers(network: Any) -> None:
    recompute = getattr(network, "activation_checkpointing_enable", None)
    if recompute is None:  # older versions of transformers have another name
        recompute = network.gradient_checkpointing_enable
    try:
        # The call also makes the embeddings require a gradient; with adapters nothing else would do so.
        recompute({"use_reentrant": False})
    except ValueError as error:
        raise UserError(
            "this model does not support gradient checkpointing",
            key="encoder.gradient_checkpointing",
            found=network.config.model_type,
        ) from error
