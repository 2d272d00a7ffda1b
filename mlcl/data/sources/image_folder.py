"""Image files in a folder a class: `class/*`, `coarse/fine/*`, or either below `train`, `validation`, `test`.

One folder deep gives the label space `class`; two give `coarse`, `fine` and the hierarchy `path`; deeper ones
give `level1`, `level2` and so on, and `path`. A class is named by its whole path, so `other` may occur twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from mlcl.config.section import Section, UserPath
from mlcl.data.format import DatasetInfo, LabelSpace
from mlcl.data.source import Source
from mlcl.data.sources.common.distribution import hash_of_files, in_batches
from mlcl.data.sources.common.table_splits import SPLIT_NAMES
from mlcl.data.split_assignment import FRACTIONS, assign, train_every_class
from mlcl.data.writer import write_dataset
from mlcl.errors import UserError

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}


class Options(Section):
    """Where the images are, and how they are split where no folders say so."""

    path: UserPath = Field(description="the folder")
    fractions: tuple[float, float, float] = Field(
        FRACTIONS, description="train, validation, test, without folders"
    )
    name: str | None = Field(None, description="default: the folder's name")
    licence: str = Field("not stated", description="the data's licence")
    allow_untrained: bool = Field(False, description="accept classes that only the test split has")


class Found(NamedTuple):
    """An image file, its folders as classes coarse to fine, and its split where a folder says it."""

    file: Path
    classes: tuple[str, ...]
    split: str | None


def state(options: Options) -> str:
    """A hash of all names, sizes and times."""
    return hash_of_files(options.path, (found.file for found in find(options.path)))


def write(folder: Path, options: Options, split_seed: int) -> DatasetInfo:
    """Write the data set; the files' bytes stay as they are. Raises UserError for a tree of uneven depth."""
    images = find(options.path)
    names = _space_names(len(images[0].classes))
    classes = {name: sorted({_prefix(image, depth) for image in images}) for depth, name in enumerate(names)}
    spaces = {name: LabelSpace(kind="single", classes=tuple(values)) for name, values in classes.items()}
    if len(names) > 1:
        spaces["path"] = LabelSpace(kind="hierarchy", levels=tuple(names))
    return write_dataset(
        folder,
        name=options.name or options.path.resolve().name,
        modality="image",
        label_spaces=spaces,
        batches=_batches(options, images, classes, split_seed),
        source=options.path.resolve().name,
        licence=options.licence,
        allow_untrained=options.allow_untrained,
    )


def find(root: Path) -> list[Found]:
    """The images below `root`, sorted. Raises UserError where there are none or depths differ."""
    if not root.is_dir():
        raise UserError("no such folder", file=root, key="data.options.path")
    files = sorted(file for file in root.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise UserError("no image files", file=root, allowed=sorted(SUFFIXES))
    folders = [file.relative_to(root).parts[:-1] for file in files]
    split_first = all(parts and parts[0] in SPLIT_NAMES for parts in folders)
    images = [
        Found(file, parts[split_first:], SPLIT_NAMES[parts[0]] if split_first else None)
        for file, parts in zip(files, folders, strict=True)
    ]
    depth = len(images[0].classes)
    for image in images:
        if len(image.classes) != depth or depth == 0:
            problem = "every image must lie equally deep, in at least one class folder"
            raise UserError(problem, file=image.file, found=len(image.classes), allowed=max(1, depth))
    return images


def _space_names(depth: int) -> list[str]:
    return {1: ["class"], 2: ["coarse", "fine"]}.get(depth) or [f"level{i + 1}" for i in range(depth)]


def _prefix(image: Found, depth: int) -> str:
    return "/".join(image.classes[: depth + 1])


def _batches(
    options: Options, images: list[Found], classes: dict[str, list[str]], seed: int
) -> Iterator[dict[str, Any]]:
    ids = [image.file.relative_to(options.path).as_posix() for image in images]
    index = {name: {label: i for i, label in enumerate(labels)} for name, labels in classes.items()}
    labels = {name: [index[name][_prefix(image, d)] for image in images] for d, name in enumerate(classes)}
    splits = [image.split or assign(i, seed, options.fractions) for image, i in zip(images, ids, strict=True)]
    if images[0].split is None:
        train_every_class(splits, [[[c] for c in column] for column in labels.values()], ids, seed)
    columns: dict[str, list[Any]] = {"id": ids, "split": splits, **labels}
    return in_batches(columns, "image", (image.file.read_bytes() for image in images))


SOURCE = Source(
    name="image_folder",
    title="image files in a folder a class",
    licence="the files' own",
    version="1",
    options=Options,
    write=write,
    state=state,
)
