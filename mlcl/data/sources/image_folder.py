"""Image files in one folder per class: `class/*`, `coarse/fine/*`; folders such as `train` give splits.

Folders of splits lie above or below those of classes. One folder deep gives the label space `class`; two give
`coarse`, `fine` and the hierarchy `path`; deeper ones give `level1`, `level2` and so on, and `path`. A class
is named by its whole path, so `other` may occur twice. Hidden folders and files are left out; files of other
kinds are read where Pillow can, else counted in a note.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, UnidentifiedImageError
from pydantic import Field

from mlcl.config.section import Section, UserPath
from mlcl.data.format import LabelSpace
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common.distribution import hash_of_files
from mlcl.data.split_assignment import (
    FRACTIONS,
    RowKeys,
    divide,
    image_digest,
    split_of_name,
    with_eval_as_test,
)
from mlcl.data.tables.notation import is_unicode, text_of
from mlcl.data.tables.options import Fractions
from mlcl.data.tables.paths import two_spellings
from mlcl.data.writer import in_batches
from mlcl.errors import UserError

SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
"""Suffixes of images. A file with such a suffix that cannot be decoded is an error."""
UNLABELLED = {"pred", "predict", "prediction", "unlabeled", "unlabelled"}
"""Words in the name of a folder whose images have no class."""


class Options(Section):
    """The options of the source `image_folder`: the folder, and the split if no folder names give it."""

    path: UserPath = Field(description="the folder")
    fractions: Fractions = Field(FRACTIONS, description="train, validation, test, where no folders give them")
    name: str | None = Field(None, description="default: the folder's name")
    licence: str = Field("not stated", description="the data's licence")
    allow_untrained: bool = Field(False, description="accept classes that only the test split has")


class FoundImage(NamedTuple):
    """An image file, its classes from folder names, coarse to fine, and its split if a folder names it."""

    file: Path
    classes: tuple[str, ...]
    split: str | None


def state(options: Options) -> str:
    """Returns a hash of the names, sizes and modification times of all images."""
    if not options.path.is_dir():
        raise UserError("no such folder", file=options.path, key="data.options.path")
    return hash_of_files(options.path, image_files(options.path)[0])


def read(options: Options, split_seed: int, _work: Workspace) -> NewDataset:
    """Returns the data set, with the bytes of the files. Raises UserError for a tree of uneven depth."""
    images, notes = find(options.path)
    depth = len(images[0].classes)
    names = {1: ["class"], 2: ["coarse", "fine"]}.get(depth) or [f"level{i + 1}" for i in range(depth)]
    paths = {name: ["/".join(image.classes[: d + 1]) for image in images] for d, name in enumerate(names)}
    spaces = {
        name: LabelSpace(kind="single", classes=tuple(sorted(set(values)))) for name, values in paths.items()
    }
    labels = {name: list(map(spaces[name].classes.index, values)) for name, values in paths.items()}
    if len(names) > 1:
        spaces["path"] = LabelSpace(kind="hierarchy", levels=tuple(names))
    ids = [image.file.relative_to(options.path).as_posix() for image in images]
    splits = [] if images[0].split is None else [str(image.split) for image in images]
    rows = RowKeys(ids, ids, [image_digest(image.file.read_bytes()) for image in images], splits=splits)
    classes = [[[label] for label in indices] for indices in labels.values()]
    notes += divide(rows, classes, options.fractions, split_seed)
    columns: dict[str, Any] = {"id": ids, "split": rows.splits, **labels}
    origin = options.path.resolve().name
    return NewDataset(
        "image",
        spaces,
        in_batches(columns, "image", (image.file.read_bytes() for image in images)),
        notes,
        options.allow_untrained,
        name=options.name or origin,
        origin=origin,
        licence=options.licence,
    )


def image_files(root: Path) -> tuple[list[Path], list[Path]]:
    """Returns the images below a folder, sorted, and all other files that are not hidden.

    Raises UserError for a link to a folder or to nothing, and for a name that is not UTF-8.
    """
    images: list[Path] = []
    others: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        names = sorted(name for name in names if not name.startswith("."))
        for file in (Path(folder) / name for name in (*folders, *names)):
            if not is_unicode(file.name):
                problem = "a name that is not UTF-8"
                raise UserError(problem, file=Path(folder), found=ascii(file.name), allowed="another name")
            if file.is_symlink() and (file.is_dir() or not file.exists()):
                raise UserError("a link to a folder, or to nothing, is not followed", file=file)
        for file in (Path(folder) / name for name in names):
            (images if _is_image(file) else others).append(file)
    return sorted(images), others


def _is_hidden(folder: str) -> bool:
    return folder.startswith(".") or folder in ("__MACOSX", "__pycache__")


def _is_image(file: Path) -> bool:
    if file.suffix.lower() in SUFFIXES:
        return True
    try:
        with Image.open(file):
            return True
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False


def find(root: Path) -> tuple[list[FoundImage], list[str]]:
    """Returns the images below `root`, and notes on files that are left out.

    Raises UserError for no images, depths that differ, and a class folder without an image.
    """
    files, others = image_files(root)
    unlabelled = [file for file in files if _is_unlabelled(file.relative_to(root).parts[0])]
    files = sorted(set(files) - set(unlabelled))
    if not files:
        raise UserError("no image files", file=root, allowed=sorted(SUFFIXES))
    folders = [list(file.relative_to(root).parts[:-1]) for file in files]
    split_depth = _find_split_depth(root, folders)
    split_names = ["" if split_depth is None else parts.pop(split_depth) for parts in folders]
    split_of = {name: split_of_name(name) for name in split_names}
    splits = [split_of[name] for name in split_names]
    while all(len(parts) > 1 for parts in folders) and _is_redundant(folders, splits):
        for parts in folders:
            parts.pop(0)
    while all(len(parts) > 1 for parts in folders) and len({parts[-1] for parts in folders}) == 1:
        for parts in folders:  # class/images/*
            parts.pop()
    split_of = with_eval_as_test(split_of)
    images = [
        FoundImage(file, tuple(map(text_of, parts)), split_of[name])
        for file, parts, name in zip(files, folders, split_names, strict=True)
    ]
    depth = Counter(len(image.classes) for image in images).most_common(1)[0][0]
    for image in images:
        if len(image.classes) != depth or depth == 0:
            problem = "every image must lie equally deep, in at least one class folder"
            raise UserError(problem, file=image.file, found=len(image.classes), allowed=max(1, depth))
    _check_classes(root, files)
    _check_spellings(root, images)
    notes = []
    if others:
        kinds = Counter(file.suffix.lower() or file.name for file in others)
        examples = ", ".join(f"{suffix} {count}" for suffix, count in kinds.most_common(3))
        notes.append(f"files that are no images, which are left out: {len(others):,} ({examples})")
    if unlabelled:
        notes.append(
            f"images without a class are left out: {len(unlabelled):,}, such as {unlabelled[0].name}"
        )
    return images, notes


def _is_unlabelled(folder: str) -> bool:
    return bool(UNLABELLED & set(folder.lower().replace("-", "_").split("_")))


def _find_split_depth(root: Path, folders: list[list[str]]) -> int | None:
    """Returns the depth at which folders are named after splits; None if there is no such depth.

    One of these folders must be named after train. Raises UserError if only some folders of a depth are
    named after splits.
    """
    for depth in range(min(map(len, folders))):
        names = {parts[depth] for parts in folders}
        splits = {split_of_name(name) for name in names}
        subfolders: dict[str | None, set[str]] = defaultdict(set)
        for parts in folders:
            subfolders[split_of_name(parts[depth])].update(parts[depth + 1 : depth + 2])
        # A class may be named train; then no other folder has classes of the same names below it.
        is_class = len(splits - {None}) == 1 < len(names) and not subfolders["train"] & subfolders[None]
        if "train" not in splits or is_class:
            continue
        if None in splits:
            other_names = sorted(name for name in names if split_of_name(name) is None)
            raise UserError(
                "folders beside those of the splits name no split", file=root, found=other_names[:5],
                allowed="train, validation and test alone, or classes alone",
            )  # fmt: skip
        return depth
    return None


def _is_redundant(folders: list[list[str]], splits: list[str | None]) -> bool:
    """Whether the first folder is the same for all images, or only repeats the split of each image."""
    is_common = len({parts[0] for parts in folders}) == 1
    repeats_split = all(
        split is not None and split_of_name(p[0]) == split for p, split in zip(folders, splits, strict=True)
    )
    return is_common or repeats_split


def _check_spellings(root: Path, images: list[FoundImage]) -> None:
    """Raises UserError for a class that is spelt in two ways, unless some split has both: `a` and `A`."""
    splits: dict[tuple[str, ...], set[str | None]] = defaultdict(set)
    for image in images:
        for depth in range(len(image.classes)):
            splits[image.classes[: depth + 1]].add(image.split)
    for one, other in two_spellings(splits):
        if not splits[tuple(one)] & splits[tuple(other)]:
            spellings, allowed = ["/".join(one), "/".join(other)], "one of them"
            raise UserError("a class is spelt in two ways", file=root, found=spellings, allowed=allowed)


def _check_classes(root: Path, files: list[Path]) -> None:
    """Raises UserError for a class folder without an image."""
    parents = {parent for file in files for parent in file.relative_to(root).parents}
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not _is_hidden(name)]
        folder = Path(place).relative_to(root)
        if not folders and folder not in parents and not _is_unlabelled((folder.parts or ("",))[0]):
            examples = [name for name in sorted(names) if not name.startswith(".")][:3] or "no files"
            raise UserError("no image is in the folder of a class", file=Path(place), found=examples)


SOURCE = Source(
    name="image_folder",
    title="image files in a folder a class",
    licence="the files' own",
    version="3",
    options=Options,
    read=read,
    state=state,
)
