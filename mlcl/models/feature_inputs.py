"""The keys of frozen inputs: what a job says of each extractor whose outputs the encoder `features` reads.

The extractors themselves are in `mlcl.training.extractors`, one a file.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mlcl.config.section import Section


class TfidfInput(Section):
    """Weighted counts of words and word pairs."""

    ngrams: Annotated[int, Field(ge=1, le=5)] = Field(2, description="words of the longest n-gram")
    max_features: int = Field(20_000, ge=1, description="most frequent n-grams of the training rows")


class TransformerInput(Section):
    """Mean token states of a frozen Hugging Face model."""

    model: str = Field(description="folder, package:NAME or hub name")
    max_length: int = Field(128, ge=1, description="tokens of a text that are read")


class ImageInput(Section):
    """Outputs of a frozen network, or the pixels themselves."""

    network: Literal["pixels", "resnet18", "resnet50"] = Field("pixels", description="of torchvision")
    weights: str | None = Field(None, description="safetensors file of torchvision weights; networks need it")
    image_size: int = Field(32, ge=1, description="side in pixels that images are resized to")

    @model_validator(mode="after")
    def _frozen_weights(self) -> Self:
        if (self.network == "pixels") != (self.weights is None):
            raise ValueError("a frozen network needs weights, pixels take none")
        return self


class ColumnInput(Section):
    """The vectors of the data set itself."""


FeatureInput = TfidfInput | TransformerInput | ImageInput | ColumnInput
InputName = Literal["tfidf", "transformer", "image", "column"]
