"""Declares an encoder: its keys in a job, its requirements, and how it is built and exported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor, nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.config.section import Section
from mlcl.errors import UserError
from mlcl.models.pretrained import PretrainedKeys, build_network, network_without_weights

SIZES = {"text": "max_length", "image": "image_size"}
"""The key of the input's size, keyed by modality: the tokens read of a text, or an image's side in pixels."""
STRETCH = "stretch"
"""The key that an encoder of images may have: whether they are resized whole, to another aspect ratio."""
TOKENIZERS = {"words": "vocabulary", "pretrained": "model", "file": "tokenizer"}
"""The key in a job that a tokenizer is built from, keyed by the kind of tokenizer: the number of words that
it keeps, the model that it belongs to, or its tokenizer.json."""
Reads = Literal["text", "image", "vectors"]
"""The modality of a data set that an encoder reads."""
GIVEN = {
    "vocabulary_size": "a text vocabulary",
    "labels": "labels",
    "label_graph_LL": "label rows",
    "input_columns": "frozen inputs",
}
"""Parameters that `build` may have besides the section's keys and `network`. The values name, for error
messages, what a data set must have."""


InputName = Literal["tfidf", "characters", "words", "transformer", "image", "column"]
"""The frozen inputs, each with an extractor in `mlcl.training.features`."""


class FeatureInput(Section):
    """The keys of one frozen input in a job, with the modality that it reads."""

    modality: ClassVar[Reads]


@dataclass(frozen=True)
class Encoder:
    """Declares an encoder as a value at the top of a module of `mlcl.models.encoders`, or of a plugin.

    The module that `build` returns has an attribute `dim`, the embedding's size D. Its `forward` takes
    `input_ids` (B, T) int64 and `attention_mask` (B, T) bool, with padding on the right, or `pixels`
    (B, 3, H, W) float, and returns embeddings (B, D). A module whose attribute `label_logits` is L > 0
    returns (B, D + L): the embedding and then L logits. Padding must not change an output, and all trained
    parameters are float32. With `frozen`, `forward` takes a dense input under its name, (B, F) float, and a
    sparse one as `NAME_columns` (B, T) int32 and `NAME_values` (B, T) float, 0 at padding. With `collate`, it
    takes the tensors that this returns, by their names.

    A module may have a `label_layer`, a linear layer with weights (L, D) that computes the L logits from one
    vector for each label, and `label_vectors`, which takes the inputs and returns these vectors (B, L, D). In
    two phases the linear probe trains this layer.

    Attributes:
        name: The name in a job.
        title: One line that describes the encoder.
        section: The keys of a job's `encoder`: `name`, the key of SIZES and, with a tokenizer, that of
            TOKENIZERS. An encoder of images may have the key STRETCH.
        build: Builds the module. It is called with keyword arguments for its own parameters, which may be:
            keys of the section as plain values (all but `name`, STRETCH and those of SIZES and TOKENIZERS
            must be named); `vocabulary_size`, the number of the tokenizer's ids, padding included; `labels`,
            the number of labels of the classifier; `label_graph_LL`, see `label_graph`; `input_columns`, the
            number of columns of each frozen input, keyed by its name; and `network`, the pretrained network
            that the keys of `PretrainedKeys` in the section describe.
        modality: `text` or `image`; None with `frozen`.
        frozen: Returns the frozen inputs that a section names, keyed by name. Such an encoder has no
            modality, no tokenizer and no key of SIZES.
        tokenizer: `words` for a vocabulary of the training texts, `pretrained` for the model's own,
            `file` for a given one.
        label_wise: Whether the module's own logits replace a classifier; otherwise they are added to the
            classifier's logits.
        files: Keys of the section whose values name a file. The file must exist before anything starts; for
            an exported model, whose weights are loaded later, `build` gets None instead.
        packages: The names of the Python distributions that predicting needs.
        export: Writes what an exported model needs besides the weights: the configuration of `network`.
        no_onnx: Why the module has no exact ONNX graph; empty if it is to be tried.
        order: The position in lists; encoders with an equal order are sorted by name.
        collate: Returns the tensors of a batch by name for a list of texts, or of images of Pillow. Such an
            encoder has no tokenizer and no key of SIZES.

    Raises:
        ValueError: `section` and `build` do not fit together.

    Example:
        >>> class Section(EncoderConfig):
        ...     name: Literal["mean"]
        ...     image_size: int = 8
        >>> class Mean(nn.Module):
        ...     dim = 3
        ...     def forward(self, pixels):
        ...         return pixels.mean((2, 3))
        >>> MEAN = Encoder("mean", "the mean colour", Section, lambda: Mean(), "image")
    """

    name: str
    title: str
    section: type[EncoderConfig]
    build: Callable[..., nn.Module]
    modality: Literal["text", "image"] | None = None
    frozen: Callable[[EncoderConfig], Mapping[InputName, FeatureInput]] | None = None
    tokenizer: Literal["words", "pretrained", "file"] | None = None
    label_wise: bool = False
    files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    export: Callable[[Any, Path], None] | None = None
    no_onnx: str = ""
    order: int = 100
    collate: Callable[[list[Any]], Mapping[str, Tensor]] | None = None

    def __post_init__(self) -> None:
        if (self.modality is None) == (self.frozen is None):
            raise ValueError(f"encoder {self.name}: it needs a modality or frozen inputs")
        reads_tokens = self.modality == "text" and self.collate is None
        if reads_tokens != (self.tokenizer is not None):
            raise ValueError(f"encoder {self.name}: texts need a tokenizer, images take none")
        keys = set(self.section.model_fields)
        used_keys = {"name", TOKENIZERS.get(self.tokenizer or "", "name")}
        inputs = {"inputs", *get_args(InputName)} & keys
        if self.collate is None:
            used_keys |= inputs if self.modality is None else {SIZES[self.modality]}
        used_keys |= {STRETCH} & keys if self.modality == "image" else set()
        used_keys |= PretrainedKeys.model_fields.keys() if self.needs("network") else set()
        if missing_keys := sorted((used_keys | set(self.files)) - keys):
            raise ValueError(f"encoder {self.name}: its section has no {', '.join(missing_keys)}")
        if unused_keys := sorted(keys - used_keys - self._parameters.keys()):
            raise ValueError(f"encoder {self.name}: build takes no {', '.join(unused_keys)}")
        required_names = {
            name for name, parameter in self._parameters.items() if parameter.default is parameter.empty
        }
        if unknown_names := sorted(required_names - keys - GIVEN.keys() - {"network"}):
            raise ValueError(f"encoder {self.name}: nothing gives build its {', '.join(unknown_names)}")

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.build).parameters

    def needs(self, given: str) -> bool:
        """Whether `build` has a parameter with the name `given`."""
        return given in self._parameters

    def reads(self, section: EncoderConfig) -> Reads:
        """Returns the modality that an encoder with this section reads: text, image or vectors."""
        if self.frozen is None:
            assert self.modality is not None
            return self.modality
        return next(iter(self.frozen(section).values())).modality

    def size(self, section: EncoderConfig) -> int:
        """Returns the number of tokens read of a text, or the side in pixels that images are resized to."""
        return int(getattr(section, SIZES[str(self.modality)]))

    def stretches(self, section: EncoderConfig) -> bool:
        """Whether images are resized whole; otherwise the centre of the longer side is kept."""
        return bool(getattr(section, STRETCH, False))

    def module(
        self, section: EncoderConfig, given: Mapping[str, Any], folder: Path | None = None
    ) -> nn.Module:
        """Builds the module of a section; for an exported model, in `folder`, the caller loads its weights.

        `given` has arguments of `build` from the data set, keyed by name. Raises UserError if the data set
        lacks something that the encoder needs.
        """
        values = dict(given)
        if self.needs("network"):
            values["network"] = build_network(section, folder)
        if folder is not None:
            values |= dict.fromkeys(self.files)
        return self._build_module(section, values)

    def check(self, section: EncoderConfig, given: Mapping[str, Any]) -> None:
        """Raises UserError for a section whose pretrained network or module cannot be built.

        `given` is that of `module`. No weights are read; an encoder without a pretrained network is not
        checked.
        """
        if self.needs("network"):
            self._build_module(section, {**given, "network": network_without_weights(section)})

    def _build_module(self, section: EncoderConfig, arguments: Mapping[str, Any]) -> nn.Module:
        values = {**section.model_dump(exclude={"name"}), **arguments}
        for name, content in GIVEN.items():
            if self.needs(name) and values.get(name) is None:
                raise UserError(f"{self.name} needs a data set with {content}", key="encoder.name")
        return self.build(**{name: values[name] for name in self._parameters if name in values})
