"""The data set format: the schema of `dataset.json`, and the columns of a shard.

A data set is a folder with `dataset.json` and Parquet shards. Every row has `id`, `split`, its content, which
is `text`, `image` (encoded bytes) or `vectors` (`dim` float32 numbers), and one column per label space
(a hierarchy names other columns and has none). A multi-label space with `unknown` has a second column. With
`grouped`, rows have `row.group`, the name of their common origin, such as a patient.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

import pyarrow as pa
from pydantic import Field, PrivateAttr, model_validator
from typing_extensions import Self

from mlcl.config.section import Section
from mlcl.errors import UserError, did_you_mean

INFO_FILE = "dataset.json"
RESERVED = ("id", "split", "text", "image", "vectors")
GROUP = "row.group"
"""The column of the rows' groups. No label space can have this name."""

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
Modality = Literal["text", "image", "vectors"]
SpaceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]


class LabelSpace(Section):
    """A label space: the kind of labels that rows have in it, and the possible labels.

    `single`: one of `classes`. `multi_label`: any number of `classes`. `aspects`: one rating on `scale` for
    each of `aspects`, 0 for missing. `hierarchy`: the spaces `levels`, coarse to fine, all single or all
    multi-label. For single levels the rows define the parent of each class; for multi-label ones `parents`
    has, for each level but the coarsest, the index of the parent of each class at the next coarser level. A
    row of multi-label levels has the parents of its labels too.

    With `unknown`, for multi_label alone, it may be unknown whether a row has a class: the column
    `<space>.unknown` lists these classes.
    """

    kind: Literal["single", "multi_label", "aspects", "hierarchy"]
    classes: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    parents: tuple[tuple[int, ...], ...] = ()
    aspects: tuple[str, ...] = ()
    scale: tuple[float, ...] = ()
    unknown: bool = Field(False, exclude_if=lambda value: not value)

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        field_name = {"hierarchy": "levels", "aspects": "aspects"}.get(self.kind, "classes")
        names = getattr(self, field_name)
        if not names:
            raise ValueError(f"a {self.kind} space needs {field_name}")
        if len(set(names)) != len(names):
            raise ValueError(f"{field_name} repeat a name")
        if self.kind == "aspects" and not self.scale:
            raise ValueError("an aspects space needs a scale, such as [1, 2, 3, 4, 5]")
        if any(a >= b for a, b in pairwise((0.0, *self.scale))):
            raise ValueError("scale must ascend and lie above 0, which stands for missing")
        if self.unknown and self.kind != "multi_label":
            raise ValueError(f"unknown is of multi_label spaces alone, this one is {self.kind}")
        return self

    @property
    def n_classes(self) -> int:
        """The number of classes, or of ratings for aspects.

        A hierarchy has the number of its finest level if `DatasetInfo.space` returned it, else 0.
        """
        return len(self.scale) if self.kind == "aspects" else len(self.classes)


class Shard(Section):
    """A Parquet file of the data set, with its number of rows and its SHA-256."""

    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.parquet$")]
    rows: int = Field(ge=1)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class HeldOut:
    """A label space, and the indices of its classes whose rows a job takes out of every split."""

    labels: str
    classes: tuple[int, ...]


class DatasetInfo(Section):
    """The content of `dataset.json`, and what a job changes: held-out classes and redrawn validation rows."""

    version: Literal[1] = 1
    name: str = Field(min_length=1)
    modality: Modality
    dim: int | None = Field(None, ge=1, description="numbers of a row, with modality vectors alone")
    label_spaces: dict[SpaceName, LabelSpace] = Field(min_length=1)
    rows: dict[SplitName, int]
    source: str
    licence: str
    allow_untrained: bool = False
    grouped: bool = Field(False, exclude_if=lambda value: not value, description="rows have `row.group`")
    notes: tuple[str, ...] = Field((), description="what a reader should know of how the rows came about")
    shards: tuple[Shard, ...] = Field(min_length=1)
    _held_out: HeldOut | None = PrivateAttr(None)
    _validation_seed: int | None = PrivateAttr(None)

    @property
    def held_out(self) -> HeldOut | None:
        """The classes whose rows are left out of the splits; None if no class is held out."""
        return self._held_out

    def without(self, classes: HeldOut) -> Self:
        """Returns the description with these classes held out."""
        info = self.model_copy()
        info._held_out = classes
        return info

    @property
    def validation_seed(self) -> int | None:
        """The seed with which the validation rows are redrawn; None if the stored ones are used."""
        return self._validation_seed

    def with_validation(self, seed: int, rows: dict[SplitName, int]) -> Self:
        """Returns the description for validation rows redrawn with `seed`; `rows` has the new row counts."""
        info = self.model_copy(update={"rows": rows})
        info._validation_seed = seed
        return info

    @model_validator(mode="after")
    def _check_spaces(self) -> Self:
        if (self.modality == "vectors") != (self.dim is not None):
            raise ValueError("dim goes with modality vectors, and with no other")
        for name, space in self.label_spaces.items():
            if name in RESERVED:
                raise ValueError(f"{name} is not free for a label space")
            _check_levels(name, space, self.label_spaces)
        if sum(self.rows.values()) != sum(shard.rows for shard in self.shards):
            raise ValueError("rows of the splits and of the shards add up to different numbers")
        return self

    @property
    def fingerprint(self) -> str:
        """`stored_fingerprint` or, if validation is redrawn, a hash of it and of the seed of the draw."""
        if self.validation_seed is None:
            return self.stored_fingerprint
        content = f"{self.stored_fingerprint} validation {self.validation_seed}"
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def stored_fingerprint(self) -> str:
        """A hash (16 hex digits) of the shards' hashes, the label spaces and the held-out classes.

        Data sets with the same rows, label spaces and held-out classes have equal fingerprints.
        """
        spaces = {
            name: space.model_dump(mode="json", exclude=None if space.parents else {"parents"})
            for name, space in self.label_spaces.items()
        }
        parts = [[shard.sha256 for shard in self.shards], spaces]
        parts += [] if self.held_out is None else [asdict(self.held_out)]
        content = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def space(self, name: str) -> LabelSpace:
        """Returns a label space, an aspect (`ratings.value`) or a level (`path.section`) by its name.

        An aspect is a single space whose classes are the scale; a hierarchy has its finest level's classes.
        Raises UserError for an unknown name.
        """
        if name not in self.space_names():
            known_names = self.space_names()
            problem = f"{self.name} has no such label space{did_you_mean(name, known_names)}"
            raise UserError(problem, found=name, allowed=known_names)
        space_name, _, part = name.partition(".")
        space = self.label_spaces[space_name]
        if space.kind == "aspects":
            ratings = tuple(f"{value:g}" for value in space.scale)
            return LabelSpace(kind="single", classes=ratings) if part else space
        if space.kind == "hierarchy":
            finest = self.label_spaces[part or space.levels[-1]]
            return finest if part else space.model_copy(update={"classes": finest.classes})
        return space

    def own_name(self, name: str) -> str:
        """Returns the name of a level without that of its hierarchy, `section` for `path.section`.

        Any other name is returned as it is.
        """
        hierarchy, _, level = name.partition(".")
        space = self.label_spaces.get(hierarchy)
        return level if space is not None and level in space.levels else name

    def space_names(self) -> list[str]:
        """Returns all names that `space` accepts."""
        parts = {name: (*space.aspects, *space.levels) for name, space in self.label_spaces.items()}
        return [*self.label_spaces, *(f"{name}.{part}" for name, names in parts.items() for part in names)]

    def class_spaces(self) -> dict[str, LabelSpace]:
        """Maps names to the single and multi-label spaces and the aspects, without the names `path.level`."""
        hierarchies = tuple(f"{n}." for n, space in self.label_spaces.items() if space.kind == "hierarchy")
        spaces = {name: self.space(name) for name in self.space_names() if not name.startswith(hierarchies)}
        return {name: space for name, space in spaces.items() if space.kind in ("single", "multi_label")}


def _check_levels(name: str, space: LabelSpace, spaces: dict[str, LabelSpace]) -> None:
    """Raises ValueError for levels, or parents, of a hierarchy that do not fit each other."""
    for level in space.levels:
        if level not in spaces or spaces[level].kind not in ("single", "multi_label"):
            raise ValueError(f"level {level} of {name} is not a single or multi-label space")
        if spaces[level].unknown:
            raise ValueError(f"level {level} of {name} has unknown entries, which no level may have")
    if len({spaces[level].kind for level in space.levels}) > 1:
        raise ValueError(f"the levels of {name} must be all single or all multi-label")
    is_multi_label = bool(space.levels) and spaces[space.levels[0]].kind == "multi_label"
    if len(space.parents) != (len(space.levels) - 1 if is_multi_label else 0):
        raise ValueError(f"parents of {name}: a multi-label hierarchy has them for each level but the first")
    for (coarse, fine), parents in zip(pairwise(space.levels), space.parents, strict=is_multi_label):
        parent_range = range(spaces[coarse].n_classes)
        if len(parents) != spaces[fine].n_classes or any(parent not in parent_range for parent in parents):
            raise ValueError(f"parents of {name}: each class of {fine} needs one of {coarse}")


def columns(
    modality: Modality, spaces: dict[str, LabelSpace], dim: int | None = None, grouped: bool = False
) -> dict[str, Any]:
    """Maps the columns of a data set with these label spaces to Arrow types; `dim` is the size of vectors."""
    content = {"text": pa.string(), "image": pa.binary(), "vectors": pa.list_(pa.float32(), dim or 1)}
    base_columns = {"id": pa.string(), modality: content[modality], "split": pa.string()}
    labels = {
        column: label_type(space) for name, space in spaces.items() for column in label_columns(name, space)
    }
    return base_columns | labels | ({GROUP: pa.string()} if grouped else {})


def label_columns(name: str, space: LabelSpace) -> tuple[str, ...]:
    """Returns the names of a label space's columns: its labels and, with `unknown`, its unknown classes."""
    if space.kind == "hierarchy":
        return ()
    return (name, unknown_column(name)) if space.unknown else (name,)


def unknown_column(name: str) -> str:
    """Returns the name of the column of classes for which it is unknown whether a row has them."""
    return f"{name}.unknown"


def label_type(space: LabelSpace) -> Any:
    """Returns the Arrow type of a label space's columns."""
    if space.kind == "multi_label":
        return pa.list_(pa.int32())
    if space.kind == "aspects":
        return pa.list_(pa.float32(), len(space.aspects))
    return pa.int32()


def plural(modality: str) -> str:
    """Returns the plural of a modality: texts, images or vectors."""
    return modality if modality == "vectors" else f"{modality}s"
