"""The keys of frozen inputs in a job, one section for each extractor whose rows the encoder `features` reads.

The extractors themselves are in `mlcl.training.features`, one a file.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from mlcl.config.section import Section

InputName = Literal["tfidf", "transformer", "image", "column"]


class FeatureInput(Section):
    """The keys of one frozen input, with its modality."""

    modality: ClassVar[Literal["text", "image", "vectors"]]


class TfidfInput(FeatureInput):
    """Weighted counts of words and of their sequences in the training rows (TF-IDF)."""

    modality = "text"

    ngrams: Annotated[int, Field(ge=1, le=5)] = Field(2, description="words of the longest sequence")
    max_features: int = Field(20_000, ge=1, description="most frequent sequences that are kept")


class TransformerInput(FeatureInput):
    """The mean token state of a frozen Hugging Face model."""

    modality = "text"

    model: str = Field(description="folder, package:NAME or hub name")
    max_length: int = Field(128, ge=1, description="tokens of a text that are read")


class ImageInput(FeatureInput):
    """The output of a frozen network, or the pixels themselves."""

    modality = "image"

    network: Literal["pixels", "resnet18", "resnet50"] = Field("pixels", description="of torchvision")
    weights: str | None = Field(None, description="safetensors file of torchvision weights; networks need it")
    image_size: int = Field(32, ge=1, description="side in pixels that images are resized to")

    @model_validator(mode="after")
    def _frozen_weights(self) -> Self:
        if (self.network == "pixels") != (self.weights is None):
            raise ValueError("a frozen network needs weights, pixels take none")
        return self


class ColumnInput(FeatureInput):
    """The vectors of the data set itself."""

    modality = "vectors"
