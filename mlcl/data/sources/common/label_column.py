"""Label spaces from the columns of a table: how they are declared."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mlcl.config.section import Section, UserPath
from mlcl.data.format import RESERVED, SpaceName


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
        return {}

    def levels_of(self) -> tuple[str, ...]:
        """The label spaces that a hierarchy goes through."""
        return ()


class SingleColumn(_Label):
    """One class a row; an empty value is missing."""

    kind: Literal["single"]
    column: str
    classes: Names | None = Field(None, description="in order; default: those that occur, sorted")

    def wanted(self) -> dict[str, str]:
        """Option key to the column it names."""
        return {"column": self.column}


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

    def wanted(self) -> dict[str, str]:
        """Option key to the column it names."""
        if self.columns is not None:
            return {f"columns.{i}": column for i, column in enumerate(self.columns)}
        return {"column": self.column or ""}


class AspectColumns(_Label):
    """One rating column an aspect; empty or 0 is missing."""

    kind: Literal["aspects"]
    columns: Names = Field(description="the aspects")
    scale: Scale = Field((1, 2, 3, 4, 5), description="the ratings that there are, ascending")

    def wanted(self) -> dict[str, str]:
        """Option key to the column it names."""
        return {f"columns.{i}": column for i, column in enumerate(self.columns)}


class HierarchyOf(_Label):
    """Label spaces of the same table, coarse to fine, all single or all multi-label."""

    kind: Literal["hierarchy"]
    levels: Names = Field(description="label spaces")
    parents: UserPath | None = Field(
        None,
        description="of multi-label levels: JSON, finest class to level to class; default: as the rows tell",
    )

    def levels_of(self) -> tuple[str, ...]:
        """The label spaces that a hierarchy goes through."""
        return self.levels


LabelColumn = Annotated[
    SingleColumn | MultiLabelColumn | AspectColumns | HierarchyOf, Field(discriminator="kind")
]


def _free(labels: dict[str, LabelColumn]) -> dict[str, LabelColumn]:
    if taken := set(RESERVED) & labels.keys():
        raise ValueError(f"{min(taken)} is not free for a label space")
    return labels


LabelColumns = Annotated[dict[SpaceName, LabelColumn], AfterValidator(_free)]
