"""What a user says of a table: the files, what its columns hold, and how labels stand in them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from mlcl.config.section import Section, UserPath
from mlcl.data.format import RESERVED, Modality, SpaceName
from mlcl.data.sources.common.distribution import file_state
from mlcl.data.split_assignment import FRACTIONS
from mlcl.errors import UserError


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("a name comes twice")
    return names


def _ascending(scale: tuple[float, ...]) -> tuple[float, ...]:
    if not all(low < high for low, high in pairwise((0.0, *scale))):
        raise ValueError("a scale ascends and lies above 0, which stands for missing")
    return scale


Names = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_distinct)]
Scale = Annotated[tuple[float, ...], Field(min_length=1), AfterValidator(_ascending)]


class _Label(Section):
    def wanted(self) -> dict[str, str]:
        """Option key to the column it names."""
        column, columns = getattr(self, "column", None), getattr(self, "columns", None) or ()
        named = {} if column is None else {"column": column}
        return named | {f"columns.{i}": name for i, name in enumerate(columns)}


class SingleColumn(_Label):
    """One class a row; an empty value is missing."""

    kind: Literal["single"]
    column: str
    classes: Names | None = Field(None, description="in order; default: those that occur, sorted")


class MultiLabelColumn(_Label):
    """Any number of classes a row: a list, a text with separators, or a column of 0 and 1 for each class."""

    kind: Literal["multi_label"]
    column: str | None = None
    columns: Names | None = Field(
        None, description="in place of column: the classes, each a column of 0 and 1"
    )
    separator: str | None = Field(
        None,
        min_length=1,
        description="between the classes of a text; default: ; or | or , where it is clear",
    )
    classes: Names | None = Field(None, description="in order; default: those that occur, sorted")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.column is None) == (self.columns is None):
            raise ValueError("give exactly one of column and columns")
        if self.columns is not None and (self.classes or self.separator):
            raise ValueError("classes and separator go with column")
        return self


class AspectColumns(_Label):
    """One rating column an aspect; empty or 0 is missing."""

    kind: Literal["aspects"]
    columns: Names = Field(description="the aspects")
    scale: Scale = Field((1, 2, 3, 4, 5), description="the ratings that there are, ascending")


class HierarchyOf(_Label):
    """Label spaces of the same table, coarse to fine, all single or all multi-label."""

    kind: Literal["hierarchy"]
    levels: Names = Field(description="label spaces")
    parents: UserPath | None = Field(
        None,
        description="of multi-label levels: JSON, finest class to level to class; default: as the rows tell",
    )


LabelColumn = Annotated[
    SingleColumn | MultiLabelColumn | AspectColumns | HierarchyOf, Field(discriminator="kind")
]


def _free(labels: dict[str, LabelColumn]) -> dict[str, LabelColumn]:
    if taken := set(RESERVED) & labels.keys():
        raise ValueError(f"{min(taken)} is not free for a label space")
    return labels


LabelColumns = Annotated[dict[SpaceName, LabelColumn], AfterValidator(_free)]


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str | Path) else value


Paths = Annotated[tuple[UserPath, ...], BeforeValidator(_listed), Field(min_length=1)]


class TableOptions(Section):
    """How the columns of a table are read."""

    path: Paths = Field(description="the file, or several with the same columns")
    text: str | None = Field(None, description="column of the text")
    image: str | None = Field(None, description="column of the image: a file beside the table, or its bytes")
    vectors: str | None = Field(None, description="column of a vector: a list of numbers, in CSV as JSON")
    id: str | None = Field(None, description="column of a unique id; default: the row's number")
    labels: LabelColumns = Field({}, description="label space to its column or columns")
    split: str | None = Field(
        None,
        description="column of the split; default: the files' names, such as train.csv, else a seeded hash",
    )
    group: str | None = Field(
        None,
        description="column of what must stay in one split, such as a patient; copies of a text always do",
    )
    fractions: tuple[float, float, float] = Field(
        FRACTIONS, description="train, validation, test, where no split is given"
    )
    name: str | None = Field(None, description="of the data set; default: the file's name")
    licence: str = Field("not stated", description="the data's licence")
    allow_untrained: bool = Field(False, description="accept labels that only the test split has")

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        if sum(column is not None for column in (self.text, self.image, self.vectors)) > 1:
            raise ValueError("give exactly one of text, image and vectors")
        return self

    @field_validator("fractions")
    @classmethod
    def _whole(cls, fractions: tuple[float, float, float]) -> tuple[float, float, float]:
        if min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-9 or fractions[0] == 0:
            raise ValueError("fractions must add up to 1, with some for train")
        return fractions

    @property
    def modality(self) -> Modality:
        """text, image or vectors."""
        if self.vectors is not None:
            return "vectors"
        return "text" if self.text is not None else "image"

    @property
    def content(self) -> str:
        """The column of the text, the image or the vector."""
        return self.text or self.image or self.vectors or ""

    def columns(self) -> dict[str, str]:
        """Option key to the column it names."""
        named = {"id": self.id, "split": self.split, "group": self.group, self.modality: self.content}
        for name, label in self.labels.items():
            named |= {f"labels.{name}.{key}": column for key, column in label.wanted().items()}
        return {key: column for key, column in named.items() if column is not None}


def state(options: TableOptions) -> list[Any]:
    """Plain data that changes when the files do. Raises UserError for a file that is not there."""
    files = [("path", path) for path in options.path]
    for name, label in options.labels.items():
        if isinstance(label, HierarchyOf) and label.parents is not None:
            files.append((f"labels.{name}.parents", label.parents))
    for key, file in files:
        if not file.is_file():
            raise UserError("no such file", file=file, key=f"data.options.{key}")
    return [part for _, file in files for part in file_state(file)]
