"""PASCAL VOC 2007 (Everingham et al. 2010): 20 classes, multi-label, 2,501 / 2,510 / 4,952 images.

Files: `VOCdevkit/VOC2007` of `VOCtrainval_06-Nov-2007.tar` and `VOCtest_06-Nov-2007.tar`, unpacked into one
folder: `ImageSets/Main/{train,val,test}.txt`, `ImageSets/Main/CLASS_{train,val,test}.txt` and `JPEGImages`.
The images come from Flickr and are for research under its terms, so they are not downloaded here.

The class files say 1 (present), -1 (absent) or 0: every object of the class is marked difficult. The
challenge leaves these out of its evaluation; here they are absent unless `difficult` says otherwise.

Similarity-Dissimilarity (Table 3) has 5.0k / 2.5k / 2.5k and does not say how. `split=paper` is our reading:
train and val together for training, test halved by a seeded hash into validation and test.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mlcl.config.section import UserPath
from mlcl.data.source import NewDataset, Source, Workspace, count, space_of
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.split_assignment import halves
from mlcl.data.writer import in_batches

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
COUNTS = {"train": 2_501, "val": 2_510, "test": 4_952, "labels a row": 1.5}
"""Published rows of each set (VOC 2007 development kit), and labels a row (Similarity-Dissimilarity)."""
MAIN = "ImageSets/Main"
SETS = {"train": "train", "val": "validation", "test": "test"}
RELEASE = Release(
    "PASCAL VOC 2007 (VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar, University of Oxford)",
    [f"{MAIN}/{name}.txt" for name in SETS],
    more=lambda _: ("JPEGImages", *(f"{MAIN}/{name}_{part}.txt" for name in CLASSES for part in SETS)),
)
MARKS = ("1", "-1", "0")
"""Marks of an image in the file of a class: present, absent, present only in difficult objects."""


class Options(DistributionOptions):
    """The options of the source `voc2007`: how rows are split, and how difficult objects count."""

    path: UserPath = Field(description="the folder with VOCdevkit/VOC2007")
    split: Literal["official", "paper"] = Field("official", description="paper: see the module's text")
    difficult: bool = Field(False, description="count a class whose objects are all difficult as present")


def read(options: Options, split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set with the multi-label space `objects`."""
    files = work.enter_context(RELEASE.open(options.path))
    sets = _read_sets(files)
    labels = _read_labels(files, sets, options.difficult)
    options.compare(COUNTS, count([name for name in sets for _ in sets[name]], list(labels.values())))
    split_of = {image: SETS[name] for name in sets for image in sets[name]}
    if options.split == "paper":
        test_splits = halves(sets["test"], split_seed)
        split_of = {image: test_splits.get(image, "train") for image in split_of}
    ids = sorted(split_of)
    splits, objects = [split_of[i] for i in ids], [labels[i] for i in ids]
    columns: dict[str, list[Any]] = {"id": ids, "split": splits, "objects": objects}
    batches = in_batches(columns, "image", (files.read(f"JPEGImages/{i}.jpg") for i in ids))
    spaces = {"objects": space_of(CLASSES)}
    return NewDataset("image", spaces, batches, allow_untrained=not options.check_counts)


def _read_sets(files: Distribution) -> dict[str, list[str]]:
    """Returns the images of each set. Raises UserError for an image that is listed twice."""
    sets: dict[str, list[str]] = {name: [] for name in SETS}
    set_of: dict[str, str] = {}
    for name, images in sets.items():
        file = f"{MAIN}/{name}.txt"
        for line, (image,) in files.fields(file, width=1):
            if image in set_of:
                raise files.error(file, f"the image of line {line} is in {set_of[image]}.txt too", image)
            set_of[image] = name
            images.append(image)
    return sets


def _read_labels(files: Distribution, sets: dict[str, list[str]], difficult: bool) -> dict[str, list[int]]:
    """Maps each image to the indices of its classes."""
    present_marks = ("1", "0") if difficult else ("1",)
    labels: dict[str, list[int]] = {image: [] for images in sets.values() for image in images}
    for index, class_name in enumerate(CLASSES):
        for name, images in sets.items():
            file = f"{MAIN}/{class_name}_{name}.txt"
            rows = list(files.fields(file, width=2))
            if sorted(image for _, (image, _) in rows) != sorted(images):
                raise files.error(file, f"lists other images than {name}.txt")
            for number, (image, mark) in rows:
                if mark not in MARKS:
                    raise files.error(file, f"unknown mark at line {number}", mark, MARKS)
                if mark in present_marks:
                    labels[image].append(index)
    return labels


SOURCE = Source(
    name="voc2007",
    title="PASCAL VOC 2007: multi-label images, 20 classes",
    origin="PASCAL Visual Object Classes Challenge 2007",
    licence="images: Flickr terms, for research",
    version="2",
    options=Options,
    read=read,
    state=RELEASE.state,
)
