"""The job's encoder section: one class for each encoder, told apart by `name`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mlcl.config.section import Positive, Section


class CnnTextConfig(Section):
    """Kim's convolutional text encoder with a word vocabulary from the training split."""

    name: Literal["cnn_text"]
    width: int = Field(100, ge=1, description="filters of each kernel size")
    kernel_sizes: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (3, 4, 5), min_length=1, description="words that a filter spans"
    )
    embedding_dim: int = Field(128, ge=1, description="size of a word vector")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout of the encoder's output")
    vocabulary: int = Field(30_000, ge=2, description="most frequent training words that are kept")
    max_length: int = Field(128, ge=1, description="words of a text that are read")


class CnnImageConfig(Section):
    """A small convolutional image encoder."""

    name: Literal["cnn_image"]
    width: int = Field(32, ge=1, description="channels of the first block; each further block doubles it")
    blocks: int = Field(3, ge=1, le=5, description="blocks, each halving the resolution")
    image_size: int = Field(32, ge=8, description="side in pixels that images are resized to")


class ResNetConfig(Section):
    """A torchvision residual network without its classifier."""

    name: Literal["resnet18", "resnet50"]
    stem: Literal["cifar", "imagenet"] = Field("cifar", description="cifar: 3x3 stride 1, no max-pool")
    weights: str | None = Field(None, description="safetensors file of torchvision weights to start from")
    image_size: int = Field(32, ge=8, description="side in pixels that images are resized to")


class LoraConfig(Section):
    """Low-rank adapters in place of training the pretrained weights (Hu et al. 2022)."""

    r: int = Field(16, ge=1, description="rank")
    alpha: Positive = Field(32.0, description="scale of an adapter, over its rank")
    dropout: float = Field(0.1, ge=0, lt=1, description="before an adapter")
    targets: tuple[str, ...] | Literal["all"] = Field(
        "all", description="names of the linear layers that get one; all: every linear layer"
    )


class _Pretrained(Section):
    """What every encoder on a Hugging Face model takes."""

    model: str = Field(description="folder, package:NAME or hub name")
    dropout: float | None = Field(
        None, ge=0, lt=1, description="of hidden states and attention; default: the model's own"
    )
    lora: LoraConfig | None = Field(None, description="train adapters alone; default: all weights")
    weights: Literal["float32", "bf16"] = Field(
        "float32", description="of the frozen weights beside lora; trained ones are float32"
    )
    gradient_checkpointing: bool = Field(False, description="less memory for a second forward pass")

    @model_validator(mode="after")
    def _frozen_weights(self) -> Self:
        if self.weights != "float32" and self.lora is None:
            raise ValueError("weights other than float32 go with lora: trained weights are float32")
        return self


class TransformerConfig(_Pretrained):
    """A Hugging Face text encoder, by folder or name."""

    name: Literal["transformer"]
    pooling: Literal["cls", "mean", "last"] = Field(
        "cls", description="which token states become the embedding; last is for decoders"
    )
    max_length: int = Field(128, ge=1, description="tokens of a text that are read")


class PlmIcdConfig(_Pretrained):
    """PLM-ICD (Huang et al. 2022): chunks through a pretrained encoder, then attention by label."""

    name: Literal["plm_icd"]
    max_length: int = Field(3072, ge=1, description="tokens of a text that are read")
    chunk_length: int = Field(128, ge=8, description="tokens that are encoded together")
    pooling: Literal["max", "mean"] = Field("max", description="over the labels' vectors, for the embedding")


class LdgnConfig(Section):
    """LDGN (Ma et al. 2021): label attention over a recurrent encoder, then two label graphs."""

    name: Literal["ldgn"]
    embedding_dim: int = Field(300, ge=1, description="size of a word vector")
    width: int = Field(150, ge=1, description="of the recurrent layer, in each direction")
    graph_layers: int = Field(2, ge=1, description="graph convolutions on each of the two graphs")
    dropout: float = Field(0.5, ge=0, lt=1, description="of word vectors and label vectors")
    vocabulary: int = Field(50_000, ge=2, description="most frequent training words that are kept")
    max_length: int = Field(500, ge=1, description="words of a text that are read")
    pooling: Literal["max", "mean"] = Field("max", description="over the labels' vectors, for the embedding")


EncoderConfig = Annotated[
    CnnTextConfig | CnnImageConfig | ResNetConfig | TransformerConfig | PlmIcdConfig | LdgnConfig,
    Field(discriminator="name"),
]
