"""NUS-WIDE (Chua et al. 2009): 269,648 Flickr images with 81 concepts, multi-label.

Files: `ImageList/{Imagelist,TrainImagelist,TestImagelist}.txt`, `Groundtruth/AllLabels/Labels_CONCEPT.txt`,
`Concepts81.txt` (beside them or in `ConceptsList`), and the images as `Flickr/FOLDER/NUMBER_PHOTO.jpg`. The
National University of Singapore gives the images out for research, under an agreement: they are not
downloaded here.

The lists separate folders by a backslash. `Groundtruth/TrainTestLabels` is not read: line 78,372 of its
`Labels_lake_Train.txt` is -1130179, and `AllLabels` has the same labels without this fault. Many images have
been deleted at Flickr, so that copies of the data set lack different images: `missing=skip` leaves out images
without a file.

60,301 images have no concept; Similarity-Dissimilarity leaves them out, and so does `unlabelled=drop`, the
default.
`split=official`: the list's 161,789 / 107,859, with a seeded share of train held out. `split=paper`: a seeded
hash, 60/20/20 as in the 125.4k / 41.9k / 41.9k of Similarity-Dissimilarity (Table 3), which is not published.
Some photos occur in two folders; the hash is of the photo's number, so that they share a split.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mlcl.config.section import UserPath
from mlcl.data.source import NewDataset, Source, Workspace, count, space_of
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.split_assignment import assign, assign_validation, shares_note
from mlcl.data.writer import in_batches
from mlcl.errors import UserError

COUNTS = {
    "images": 269_648,
    "train": 161_789,
    "test": 107_859,
    "concepts": 81,
    "labelled": 209_347,
    "labels a row": 2.4,
}
"""Published counts: rows, rows of each list, concepts, rows with a concept, and concepts of such a row."""
LIST, TRAIN, TEST = (f"ImageList/{name}magelist.txt" for name in ("I", "TrainI", "TestI"))
CONCEPTS = ("Concepts81.txt", "ConceptsList/Concepts81.txt")
RELEASE = Release(
    "NUS-WIDE (ImageList.zip, Groundtruth.zip, ConceptsList.zip, National University of Singapore)",
    [LIST, TRAIN, TEST, CONCEPTS],
    more=lambda files: ("Flickr", *map(_label_file, files.class_names(*CONCEPTS))),
)
PAPER = (0.6, 0.2, 0.2)


class Options(DistributionOptions):
    """The options of the source `nuswide`: images without concept or file, and how rows are split."""

    path: UserPath = Field(description="the folder with ImageList, Groundtruth, Concepts81.txt and Flickr")
    split: Literal["official", "paper"] = Field("official", description="paper: a seeded hash, 60/20/20")
    validation: float = Field(0.1, gt=0, lt=1, description="share of train held out, with split=official")
    unlabelled: Literal["keep", "drop"] = Field("drop", description="images without any concept")
    missing: Literal["error", "skip"] = Field("error", description="images whose file is not there")


def read(options: Options, split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set with the multi-label space `concepts`."""
    files = work.enter_context(RELEASE.open(options.path))
    concepts = files.class_names(*CONCEPTS)
    images = _read_images(files, LIST)
    parts = _read_parts(files, images)
    labels = _read_labels(files, concepts, images)
    rows = [row for row in labels.values() if row]
    counts = count(list(parts.values()), rows) | {"images": len(labels), "labelled": len(rows)}
    options.compare(COUNTS, counts | {"concepts": len(concepts)})
    candidates = [image for image in sorted(images) if labels[image] or options.unlabelled == "keep"]
    ids = _select_present_images(files, options, candidates)
    splits = [_assign_split(options, image, parts[image], split_seed) for image in ids]
    columns: dict[str, list[Any]] = {"id": ids, "split": splits, "concepts": [labels[i] for i in ids]}
    reason = "of few photos a hash gives other shares"
    notes = shares_note(splits, PAPER, reason) if options.split == "paper" else []
    batches = in_batches(columns, "image", (files.read(f"Flickr/{image}") for image in ids))
    spaces = {"concepts": space_of(concepts)}
    return NewDataset("image", spaces, batches, notes, not options.check_counts)


def _label_file(concept: str) -> str:
    return f"Groundtruth/AllLabels/Labels_{concept}.txt"


def _read_images(files: Distribution, name: str) -> list[str]:
    return [line.strip().replace("\\", "/") for _, line in files.lines(name) if line.strip()]


def _read_parts(files: Distribution, images: list[str]) -> dict[str, str]:
    """Maps each image to its list, `train` or `test`. Raises UserError for one in neither or in both."""
    train, test = (set(_read_images(files, name)) for name in (TRAIN, TEST))
    if unlisted_images := set(images) - train - test:
        problem = f"{len(unlisted_images)} images are neither in {TRAIN} nor in {TEST}"
        raise files.error(LIST, problem, min(unlisted_images))
    if shared_images := train & test:
        raise files.error(TEST, f"{len(shared_images)} images are in {TRAIN} too", min(shared_images))
    return dict.fromkeys(train, "train") | dict.fromkeys(test, "test")


def _read_labels(files: Distribution, concepts: tuple[str, ...], images: list[str]) -> dict[str, list[int]]:
    """Maps each image to the indices of its concepts."""
    labels: dict[str, list[int]] = {image: [] for image in images}
    for index, concept in enumerate(concepts):
        for row in np.flatnonzero(_read_marks(files, _label_file(concept), len(images))):
            labels[images[row]].append(index)
    return labels


def _read_marks(files: Distribution, name: str, rows: int) -> NDArray[np.bool_]:
    """Reads a mask (rows,) of the images that have the concept of a file."""
    marks = [line.strip() for _, line in files.lines(name)]
    while marks and not marks[-1]:
        marks.pop()
    if len(marks) != rows:
        raise files.error(name, "not one line an image", len(marks), rows)
    for number, mark in enumerate(marks, 1):
        if mark not in ("0", "1"):
            raise files.error(name, f"line {number} is no label", mark, "0 or 1")
    return np.array([mark == "1" for mark in marks], dtype=np.bool_)


def _select_present_images(files: Distribution, options: Options, images: list[str]) -> list[str]:
    present_images = [image for image in images if files.find_first(f"Flickr/{image}") is not None]
    if len(present_images) < len(images) and options.missing == "error":
        missing = sorted(set(images) - set(present_images))
        problem = f"{len(missing):,} of {len(images):,} images have no file; missing=skip leaves them out"
        raise UserError(
            problem, file=files.file("Flickr"), key="data.options.missing", found=f"no {missing[0]}"
        )
    return present_images


def _assign_split(options: Options, image: str, part: str, seed: int) -> str:
    photo = PurePosixPath(image).stem.rpartition("_")[2]
    if options.split == "paper":
        return assign(photo, seed, PAPER)
    return "test" if part == "test" else assign_validation(photo, seed, options.validation)


SOURCE = Source(
    name="nuswide",
    title="NUS-WIDE: multi-label images, 81 concepts",
    origin="NUS-WIDE, National University of Singapore",
    licence="for research; images: Flickr terms",
    version="1",
    options=Options,
    read=read,
    state=RELEASE.state,
)
