"""Options of a table: its files, the contents of its columns, and the notation of labels."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator
from typing_extensions import Self

from mlcl.config.section import Section, UserPath, as_tuple, exactly_one
from mlcl.data.format import RESERVED, Modality, SpaceName
from mlcl.data.split_assignment import FRACTIONS


def _check_distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("a name comes twice")
    return names


def _check_ascending(scale: tuple[float, ...]) -> tuple[float, ...]:
    if not all(low < high for low, high in pairwise((0.0, *scale))):
        raise ValueError("a scale ascends and lies above 0, which stands for missing")
    return scale


def _check_fractions(fractions: tuple[float, float, float]) -> tuple[float, float, float]:
    if min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-9 or fractions[0] == 0:
        raise ValueError("fractions must add up to 1, with some for train")
    return fractions


Names = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_check_distinct)]
Scale = Annotated[tuple[float, ...], Field(min_length=1), AfterValidator(_check_ascending)]
Fractions = Annotated[tuple[float, float, float], AfterValidator(_check_fractions)]
"""The fractions of train, validation and test."""


class _Label(Section):
    def match_columns(self, columns: Sequence[str]) -> dict[str, str]:
        """Maps option keys to the columns that they name; patterns are matched against `columns`."""
        column, patterns = getattr(self, "column", None), getattr(self, "columns", None) or ()
        named_columns = {} if column is None else {"column": column}
        matches = dict.fromkeys(c for pattern in patterns for c in _matching_columns(pattern, columns))
        return named_columns | {f"columns.{i}": name for i, name in enumerate(matches)}


def _matching_columns(pattern: str, columns: Sequence[str]) -> Sequence[str]:
    """Returns the columns that match `pattern`, such as `is_*`; [pattern] if it is a column or none match."""
    return (pattern not in columns and fnmatch.filter(columns, pattern)) or [pattern]


class SingleColumn(_Label):
    """A label space with one class per row, from one column; an empty cell is a missing class."""

    kind: Literal["single"]
    column: str
    classes: Names | None = Field(None, description="in order; default: those that occur, sorted")


Treatment = Literal["negative", "leave_out", "ignore"]


class MultiLabelColumn(_Label):
    """A label space with any number of classes per row.

    The labels are in one column of lists or of texts with separators, or in a column of 0 and 1 for each
    class.
    """

    kind: Literal["multi_label"]
    column: str | None = None
    columns: Names | None = Field(
        None, description="in place of column: the classes, each a column of 0 and 1; `is_*` names several"
    )
    separator: str | None = Field(
        None,
        min_length=1,
        description="between the classes of a text; default: ; or | or , where it is clear",
    )
    classes: Names | None = Field(
        None, description="in order; default: those that occur, sorted. Of lists of 0 and 1: their names"
    )
    threshold: float | None = Field(None, gt=0, le=1, description="of shares: the least that is a label")
    missing: Treatment | None = Field(
        None,
        description="a blank among 0 and 1: no label (negative), the row is left out, or loss and metrics "
        "ignore it; default: negative where no cell has 0, else an error",
    )
    uncertain: Treatment | None = Field(None, description="-1 among 0 and 1, likewise; default: an error")

    _check_one_way = exactly_one("column", "columns")

    @model_validator(mode="after")
    def _check_column_options(self) -> Self:
        if self.columns is not None and (self.classes or self.separator):
            raise ValueError("classes and separator go with column")
        return self


class AspectColumns(_Label):
    """A label space of ratings, one column per aspect; an empty cell or 0 is a missing rating."""

    kind: Literal["aspects"]
    columns: Names = Field(description="the aspects")
    scale: Scale = Field((1, 2, 3, 4, 5), description="the ratings that there are, ascending")


class PathColumn(_Label):
    """A column of paths, such as `Animals > Birds > Parrots`.

    It gives a label space for each level, and the hierarchy of them.
    """

    kind: Literal["path"]
    column: str
    separator: str = Field(min_length=1, description="between the levels")


class HierarchyOf(_Label):
    """A hierarchy of label spaces of the same table, coarse to fine, all single or all multi-label."""

    kind: Literal["hierarchy"]
    levels: Names = Field(description="label spaces")
    parents: UserPath | None = Field(
        None,
        description="of multi-label levels: JSON, finest class to level to class; default: as the rows tell",
    )


LabelColumn = Annotated[
    SingleColumn | MultiLabelColumn | AspectColumns | PathColumn | HierarchyOf, Field(discriminator="kind")
]


def _check_free_names(labels: dict[str, LabelColumn]) -> dict[str, LabelColumn]:
    paths = [re.escape(name) for name, label in labels.items() if isinstance(label, PathColumn)]
    levels = {name for name in labels if any(re.fullmatch(rf"{path}_level\d+", name) for path in paths)}
    if taken_names := levels | (set(RESERVED) & labels.keys()):
        raise ValueError(f"{min(taken_names)} is not free for a label space")
    return labels


LabelColumns = Annotated[dict[SpaceName, LabelColumn], AfterValidator(_check_free_names)]


def _unwrap_single(columns: tuple[str, ...]) -> Any:
    return columns[0] if len(columns) == 1 else columns


Columns = Annotated[Names, BeforeValidator(as_tuple), PlainSerializer(_unwrap_single)]
Paths = Annotated[tuple[UserPath, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class TableOptions(Section):
    """The options that all sources of tables have: files, and the roles of their columns."""

    path: Paths = Field(description="the file, or several with the same columns")
    text: Columns | None = Field(None, description="column of the text; of several the texts are joined")
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
    fractions: Fractions = Field(FRACTIONS, description="train, validation, test, where no split is given")
    name: str | None = Field(None, description="of the data set; default: the file's name")
    licence: str = Field("not stated", description="the data's licence")
    twins: Literal["apart", "together"] = Field(
        "apart", description="together: texts equal but for numbers or a side stay in one split"
    )
    allow_untrained: bool = Field(False, description="accept labels that only the test split has")

    @model_validator(mode="after")
    def _check_one_content(self) -> Self:
        if sum(column is not None for column in (self.text, self.image, self.vectors)) > 1:
            raise ValueError("give exactly one of text, image and vectors")
        return self

    @model_validator(mode="after")
    def _check_labels_are_not_content(self) -> Self:
        columns = {name for label in self.labels.values() for name in label.match_columns(()).values()}
        content_labels = sorted(columns.intersection(self.content))
        if content_labels:
            raise ValueError(f"the column {content_labels[0]} is {self.modality} and labels")
        return self

    @property
    def modality(self) -> Modality:
        """The modality of the content: `text`, `image` or `vectors`."""
        if self.vectors is not None:
            return "vectors"
        return "text" if self.text is not None else "image"

    @property
    def content(self) -> tuple[str, ...]:
        """The names of the text columns, or the name of the one image or vector column."""
        return self.text or tuple(column for column in (self.image, self.vectors) if column is not None)

    def columns(self, table: Sequence[str]) -> dict[str, str]:
        """Maps option keys to the columns that they name; `table` has the names of the table's columns."""
        content = {self.modality if i == 0 else f"text.{i}": c for i, c in enumerate(self.content)}
        named_columns = {"id": self.id, "split": self.split, "group": self.group}
        for name, label in self.labels.items():
            named_columns |= {
                f"labels.{name}.{key}": column for key, column in label.match_columns(table).items()
            }
        return content | {key: column for key, column in named_columns.items() if column is not None}
