"""The keys in a job that every encoder on a Hugging Face model takes."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mlcl.config.section import Positive, Section

PACKAGES = ("transformers", "peft")


class LoraConfig(Section):
    """Low-rank adapters in place of training the pretrained weights (Hu et al. 2022)."""

    r: int = Field(16, ge=1, description="rank")
    alpha: Positive = Field(32.0, description="scale of an adapter, over its rank")
    dropout: float = Field(0.1, ge=0, lt=1, description="before an adapter")
    targets: tuple[str, ...] | Literal["all"] = Field(
        "all", description="names of the linear layers that get one; all: every linear layer"
    )


class PretrainedKeys(Section):
    """The keys that every encoder on a Hugging Face model takes."""

    model: str = Field(description="folder, package:NAME or hub name")
    dropout: float | None = Field(
        None, ge=0, lt=1, description="of hidden states and attention; default: the model's own"
    )
    lora: LoraConfig | None = Field(None, description="train adapters alone; default: all weights")
    weights: Literal["float32", "bf16"] = Field(
        "float32", description="of the frozen weights beside lora; trained ones are float32"
    )
    gradient_checkpointing: bool = Field(False, description="less memory for a second forward pass")
    freeze: bool | Annotated[int, Field(ge=1)] = Field(
        False, description="true: train no weight; a number: none of the embeddings and so many first layers"
    )

    @model_validator(mode="after")
    def _frozen_weights(self) -> Self:
        if self.weights != "float32" and self.lora is None:
            raise ValueError("weights other than float32 go with lora: trained weights are float32")
        if self.freeze and self.lora is not None:
            raise ValueError("lora trains no other weight: freeze goes without it")
        return self
