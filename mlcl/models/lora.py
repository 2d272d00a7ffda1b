"""Low-rank adapters in place of training the pretrained weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from mlcl.errors import UserError


@dataclass(frozen=True)
class Lora:
    """W x becomes W x + (alpha / r) B A dropout(x); A and B alone train, B starts at 0.

    `targets` names linear layers by their path or its end; "all" are all of the model's.
    Source: Hu et al. 2022, LoRA: Low-Rank Adaptation of Large Language Models, Eq. 3 and section 4.1. The
    defaults are those of Similarity-Dissimilarity, appendix D, which does not say which layers get one.
    """

    r: int = 16
    alpha: float = 32.0
    dropout: float = 0.1
    targets: tuple[str, ...] | Literal["all"] = "all"


def add_lora(network: nn.Module, lora: Lora) -> None:
    """Puts adapters into the network, which freezes all else; they are float32 beside weights of any type.

    Raises UserError for a target that is no linear layer of the network, for none at all, and where peft is
    not installed.
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
            # An adapter comes in the type of the weight beside it; in bf16 small steps would be lost.
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
