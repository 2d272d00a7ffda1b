"""The encoder `features`, a small network with a linear path on frozen inputs, and its keys in a job.

Shapes: B rows, F columns of an input, T entries of the fullest sparse row, E entries of all sparse rows, H
size of the first layer, D embedding, L logits, O outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import Self

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models.encoder import Encoder, FeatureInput, InputName

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU}
SPARSE = ("tfidf", "characters")
"""The inputs whose rows are sparse."""
WIDE = 0.3
"""The scale of the linear path. It slows down the weights of rare terms, which would overfit: Adam's steps
are equally large for rare and frequent terms."""
STD = 0.02
"""The standard deviation of the initial weights for a sparse input, whose rows have unit length."""


class TfidfInput(FeatureInput):
    """TF-IDF features of word n-grams, with the vocabulary and weights of the training rows."""

    modality = "text"
    analyzer: ClassVar[str] = "word"
    shortest: ClassVar[int] = 1

    ngrams: Annotated[int, Field(ge=1, le=5)] = Field(2, description="words of the longest sequence")
    max_features: int = Field(20_000, ge=1, description="most frequent sequences that are kept")


class CharactersInput(TfidfInput):
    """TF-IDF features of character n-grams within words, with vocabulary and weights of the training rows."""

    analyzer = "char_wb"
    shortest = 2

    ngrams: Annotated[int, Field(ge=2, le=8)] = Field(5, description="characters of the longest sequence")


class WordsInput(FeatureInput):
    """The mean of fixed vectors of a text's tokens, from the package wordllama."""

    modality = "text"

    max_length: int = Field(512, ge=1, description="tokens of a text that are read")


class TransformerInput(FeatureInput):
    """The mean token state of a frozen Hugging Face model."""

    modality = "text"

    model: str = Field(description="folder, URI, package:NAME or hub name")
    max_length: int = Field(128, ge=1, description="tokens of a text that are read")
    unit: bool = Field(False, description="scale each row to unit length")


class ImageInput(FeatureInput):
    """The output of a frozen network, or the pixels themselves."""

    modality = "image"

    network: Literal["pixels", "resnet18", "resnet50"] = Field("pixels", description="of torchvision")
    weights: str | None = Field(None, description="safetensors file of torchvision weights; networks need it")
    image_size: int = Field(32, ge=1, description="side in pixels that images are resized to")

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if (self.network == "pixels") != (self.weights is None):
            raise ValueError("a frozen network needs weights, pixels take none")
        return self


class ColumnInput(FeatureInput):
    """The vectors of the data set itself."""

    modality = "vectors"


class FeaturesConfig(EncoderConfig):
    """A small network on frozen inputs, with a linear path to the logits."""

    name: Literal["features"]
    inputs: tuple[InputName, ...] = Field(min_length=1, description="what it reads, all of one modality")
    tfidf: TfidfInput = TfidfInput()
    characters: CharactersInput | None = Field(None, description="its defaults where it is not given")
    words: WordsInput | None = Field(None, description="its defaults where it is not given")
    transformer: TransformerInput | None = Field(None, description="needed where it is an input")
    image: ImageInput = ImageInput()
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((), description="sizes of the layers before out")
    out: int = Field(256, ge=1, description="size of the embedding")
    dropout: float = Field(0.3, ge=0, lt=1, description="after every layer")
    input_dropout: float = Field(
        0.0, ge=0, lt=1, description="share of the inputs' values that a training pass leaves out"
    )
    activation: Literal["gelu", "relu"] = "gelu"
    wide: bool = Field(True, description="a linear path from all inputs to the classifier's logits")
    deep_columns: int = Field(
        4096,
        ge=1,
        description="columns of a sparse input that the first layer reads; the linear path reads all",
    )

    @model_validator(mode="after")
    def _check_inputs(self) -> Self:
        if len(set(self.inputs)) < len(self.inputs):
            raise ValueError("an input is listed twice")
        if "transformer" in self.inputs and self.transformer is None:
            raise ValueError("the input transformer needs transformer: {model: ...}")
        if len({section.modality for section in frozen_inputs(self).values()}) > 1:
            raise ValueError("the inputs read different modalities")
        return self


def frozen_inputs(section: EncoderConfig) -> dict[InputName, FeatureInput]:
    """Returns the sections of the inputs that an encoder's section names, in the order of the names."""
    config = cast(FeaturesConfig, section)
    sections: dict[InputName, FeatureInput | None] = {
        "tfidf": config.tfidf,
        "characters": config.characters or CharactersInput(),
        "words": config.words or WordsInput(),
        "transformer": config.transformer,
        "image": config.image,
        "column": ColumnInput(),
    }
    return {name: input_section for name in config.inputs if (input_section := sections[name]) is not None}


@dataclass(frozen=True)
class SparseRows:
    """Sparse rows: row b has the columns and values from `offset[b]` to `offset[b + 1] - 1`.

    `offset` (B + 1,) and `column_E` are int32, `value_E` is float.
    """

    column_E: Tensor
    value_E: Tensor
    offset: Tensor

    @classmethod
    def of(cls, column_BT: Tensor, value_BT: Tensor) -> Self:
        """Converts padded rows (B, T), whose padding has the value 0.

        On a CPU the padding is removed. On another device it is kept, since the host would have to wait for
        the number of entries.
        """
        if column_BT.device.type != "cpu":
            return cls.from_padded(column_BT, value_BT)
        nonzero_BT = (value_BT != 0).numpy()
        column_E, value_E = column_BT.numpy()[nonzero_BT], value_BT.numpy()[nonzero_BT]
        offset = _offsets(torch.from_numpy(nonzero_BT.sum(1)))
        return cls(torch.from_numpy(column_E), torch.from_numpy(value_E), offset)

    @classmethod
    def from_padded(cls, column_BT: Tensor, value_BT: Tensor) -> Self:
        """Converts padded rows and keeps their padding."""
        rows, entries = column_BT.shape
        offset = torch.arange(rows + 1, device=column_BT.device, dtype=torch.int32) * entries
        return cls(column_BT.flatten(), value_BT.flatten(), offset)

    def drop_columns(self, columns: int) -> Self:
        """Returns the rows without entries in columns from `columns` on; works on a CPU only."""
        known_E = self.column_E.numpy() < columns
        if known_E.all():
            return self
        column_E, value_E = self.column_E.numpy()[known_E], self.value_E.numpy()[known_E]
        offset = _offsets(torch.from_numpy(known_E))[self.offset]
        return type(self)(torch.from_numpy(column_E), torch.from_numpy(value_E), offset)


def _offsets(counts: Tensor) -> Tensor:
    return F.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))


class SparseLinear(nn.Module):
    """A linear layer on sparse rows: y_b = sum_e v_e W[c_e] over the entries e of row b in columns below F.

    Other entries are ignored, and there is no bias. W starts normally distributed with deviation `std`.
    """

    def __init__(self, columns: int, outputs: int, std: float) -> None:
        super().__init__()
        self.weight_FO = nn.Parameter(torch.randn(columns, outputs) * std)

    def forward(self, rows: SparseRows | Tensor) -> Tensor:
        """Returns the products (B, O) of B rows and W; rows that are a tensor are dense."""
        if isinstance(rows, Tensor):
            return rows[:, : len(self.weight_FO)] @ self.weight_FO
        if rows.column_E.device.type != "cpu":
            return self.multiply_by_bag(rows)
        y_BO: Tensor = _Product.apply(rows.drop_columns(len(self.weight_FO)), self.weight_FO)
        return y_BO

    def multiply_by_bag(self, rows: SparseRows) -> Tensor:
        """Computes the products of `forward` by functions of PyTorch alone, on any device."""
        known_E = rows.column_E < len(self.weight_FO)
        return _sum_rows(
            SparseRows(rows.column_E * known_E, rows.value_E * known_E, rows.offset), self.weight_FO
        )


class _Product(torch.autograd.Function):
    """The product X W by two sums over bags, which is much faster on a CPU than `embedding_bag`'s backward.

    A row of X W is the sum of the rows of W that the entries of X's row name; a row of the gradient X^T G is
    a sum of rows of G in the same way, by the entries of X transposed.
    """

    @staticmethod
    def forward(ctx: Any, rows: SparseRows, weight_FO: Tensor) -> Tensor:
        ctx.rows, ctx.columns = rows, len(weight_FO)
        return _sum_rows(rows, weight_FO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, _sum_rows(_transpose(ctx.rows, ctx.columns), gradients[0].contiguous())


def _sum_rows(rows: SparseRows, matrix: Tensor) -> Tensor:
    return F.embedding_bag(
        rows.column_E,
        matrix,
        rows.offset,
        mode="sum",
        per_sample_weights=rows.value_E.to(matrix.dtype),
        include_last_offset=True,
    )


def _transpose(rows: SparseRows, columns: int) -> SparseRows:
    from scipy.sparse import csr_array

    entries = tuple(part.numpy() for part in (rows.value_E, rows.column_E, rows.offset))
    by_column = csr_array(entries, shape=(len(rows.offset) - 1, columns)).T.tocsr()
    column_E, value_E, offset = map(torch.from_numpy, (by_column.indices, by_column.data, by_column.indptr))
    return SparseRows(column_E, value_E, offset)


def _build_map(name: str, columns: int, outputs: int) -> nn.Module:
    if name in SPARSE:
        return SparseLinear(columns, outputs, STD)
    return nn.Linear(columns, outputs, bias=False)


class FeatureNetwork(nn.Module):
    """Layers on frozen inputs, and a linear path from the inputs to the logits beside them ("wide and deep").

        h_1 = drop(act(sum_i W_i x_i + b)),  h_k = drop(act(W_k h_{k-1} + b_k)),  embedding = h_last
        own logits = c sum_i V_i x_i,  c = WIDE

    The own logits are added to the classifier's, so that the network contains a linear model on all inputs.
    `dim` is D, `label_logits` is L, or 0 without `wide`. W reads the first `deep_columns` of a sparse input.
    V is initialised with 0. `input_dropout` drops values of x, such as words of a text, for both parts
    equally.

    Source: Cheng et al. 2016, Wide & Deep Learning for Recommender Systems, Eq. 3 (its wide part also has
    products of features).
    """

    def __init__(
        self,
        input_columns: Mapping[str, int],
        labels: int,
        *,
        hidden: Sequence[int] = (),
        out: int = 256,
        dropout: float = 0.3,
        input_dropout: float = 0.0,
        activation: Literal["gelu", "relu"] = "gelu",
        wide: bool = True,
        deep_columns: int = 4096,
    ) -> None:
        super().__init__()
        self.dim = out
        self.label_logits = labels if wide else 0
        first, *rest = (*hidden, out)
        self.deep = nn.ModuleDict()
        self.wide = nn.ModuleDict()
        for name, columns in input_columns.items():
            n_columns = min(columns, deep_columns) if name in SPARSE else columns
            self.deep[name] = _build_map(name, n_columns, first)
            if wide:
                self.wide[name] = _build_map(name, columns, labels)
                nn.init.zeros_(next(self.wide[name].parameters()))
        self.bias = nn.Parameter(torch.zeros(first))
        self.input_dropout = nn.Dropout(input_dropout)
        tail = (ACTIVATIONS[activation](), nn.Dropout(dropout))
        layers = [[nn.Linear(a, b), *tail] for a, b in pairwise((first, *rest))]
        self.layers = nn.Sequential(*tail, *(module for layer in layers for module in layer))

    def forward(self, **inputs: Tensor) -> Tensor:
        """Returns (B, D), or (B, D + L) with `wide`, at least float32: the embedding, then the own logits.

        A dense input is passed under its name, (B, F) float; a sparse one as `NAME_columns` (B, T) int32,
        padded, and `NAME_values` (B, T) float, 0 at padding, or like a dense one.
        """
        rows = {name: self._prepare_rows(name, inputs) for name in self.deep}
        h_BH = self._sum_maps(self.deep, rows) + self.bias
        embedding_BD: Tensor = self.layers(h_BH)
        if embedding_BD.dtype != torch.float64:
            embedding_BD = embedding_BD.float()
        if not self.label_logits:
            return embedding_BD
        with torch.autocast(h_BH.device.type, enabled=False):
            return torch.cat([embedding_BD, WIDE * self._sum_maps(self.wide, rows)], dim=1)

    def _prepare_rows(self, name: str, inputs: Mapping[str, Tensor]) -> Tensor | SparseRows:
        if name in inputs:
            values: Tensor = self.input_dropout(inputs[name])
            return values
        rows = SparseRows.of(inputs[f"{name}_columns"], inputs[f"{name}_values"])
        return replace(rows, value_E=self.input_dropout(rows.value_E))

    def _sum_maps(self, maps: nn.ModuleDict, rows: Mapping[str, Tensor | SparseRows]) -> Tensor:
        parts = [layer(rows[name]) for name, layer in maps.items()]
        total: Tensor = sum(parts[1:], parts[0])
        return total


FEATURES = Encoder(
    name="features",
    title="a small network with a linear path, on TF-IDF, frozen models or given vectors",
    section=FeaturesConfig,
    build=FeatureNetwork,
    frozen=frozen_inputs,
    packages=("scikit-learn", "scipy", "transformers", "torchvision"),
    order=0,
)
