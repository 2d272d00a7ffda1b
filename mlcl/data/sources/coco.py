"""MS COCO (Lin et al. 2014): 80 object classes, multi-label; the images of train and val of 2014 or 2017.

Files: `annotations/instances_{train,val}YEAR.json` (`annotations_trainvalYEAR.zip`) and the folders
`trainYEAR` and `valYEAR` (beside `annotations` or in `images`), unpacked. The annotations are CC BY 4.0, the
images are Flickr's under its terms: they are not downloaded here.

Category ids run from 1 to 90 with gaps, so classes are numbered in the order of the ids. A class is present
if an object or a crowd (`iscrowd`) of it is boxed. Images without a box (702 of train2014) have no labels and
are kept; `unlabelled=drop` leaves them out. The labels of COCO's own test images are not public.

`split=official`: val is test, and a seeded share of train is held out for validation. `split=paper`: train
is for training and val is halved by a seeded hash into validation and test, as the 82.0k / 20.2k / 20.2k of
Similarity-Dissimilarity (Table 3) suggest; which half is which is not published. Half of all 40,504 images of
val is 20,252, and 82,081 images of train have a box: by our reading the paper dropped images without a box in
train alone. Here they are kept or dropped in both sets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from mlcl.config.section import UserPath
from mlcl.data.source import NewDataset, Source, Workspace, check_class_names, count, space_of
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.split_assignment import assign_validation, halves
from mlcl.data.writer import in_batches
from mlcl.errors import UserError

COUNTS: dict[int, dict[str, float]] = {
    2014: {"train": 82_783, "val": 40_504, "classes": 80, "labels a row": 2.9},
    2017: {"train": 118_287, "val": 5_000, "classes": 80, "labels a row": 2.9},
}
"""Published rows of each set, classes, and (from Similarity-Dissimilarity) labels a row."""


class Options(DistributionOptions):
    """The options of the source `coco`: the release, images without objects, and how rows are split."""

    path: UserPath = Field(description="the folder with annotations, trainYEAR and valYEAR")
    year: Literal[2014, 2017] = Field(2014, description="the release")
    split: Literal["official", "paper"] = Field("official", description="paper: val is halved")
    validation: float = Field(0.1, gt=0, lt=1, description="share of train held out, with split=official")
    unlabelled: Literal["keep", "drop"] = Field("keep", description="images without any object")


class CocoImage(NamedTuple):
    """An image: its file name, the set (train or val) that it comes from, and its class indices."""

    file: str
    part: str
    labels: list[int]


def release(options: Options) -> Release:
    """Returns the files of a year's release: title, annotation files and image folders."""
    title = f"MS COCO {options.year} (annotations_trainval{options.year}.zip of the COCO Consortium)"
    folders = [f"{parent}{part}{options.year}" for part in ("train", "val") for parent in ("", "images/")]
    return Release(title, [_instances_file(options, part) for part in ("train", "val")], lambda _: folders)


def read(options: Options, split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set with the multi-label space `objects`. Raises UserError for bad annotations."""
    files = work.enter_context(release(options).open(options.path))
    classes, pictures = _read(files, options)
    counts = count([p.part for p in pictures], [p.labels for p in pictures])
    options.compare(COUNTS[options.year], counts | {"classes": len(classes)})
    rows = sorted(picture for picture in pictures if picture.labels or options.unlabelled == "keep")
    columns: dict[str, list[Any]] = {
        "id": [row.file for row in rows],
        "split": _assign_splits(options, rows, split_seed),
        "objects": [row.labels for row in rows],
    }
    names = [f"{row.part}{options.year}/{row.file}" for row in rows]
    return NewDataset(
        "image",
        {"objects": space_of(classes)},
        in_batches(columns, "image", (files.read(name, f"images/{name}") for name in names)),
        allow_untrained=not options.check_counts,
        name=f"coco{options.year}",
        origin=f"MS COCO {options.year}, instances",
    )


def _instances_file(options: Options, part: str) -> str:
    return f"annotations/instances_{part}{options.year}.json"


def _read(files: Distribution, options: Options) -> tuple[tuple[str, ...], list[CocoImage]]:
    """Returns the classes in the order of their ids, and the images of both sets."""
    classes: tuple[str, ...] = ()
    pictures = []
    for part in ("train", "val"):
        name = _instances_file(options, part)
        # Nine tenths of the file are outlines, which are dropped as they are read.
        tree = files.json(name, lambda entry: {key: entry[key] for key in entry if key != "segmentation"})
        try:
            part_classes, part_pictures = _parse(tree, part, files.file(name))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            problem = "no COCO instances with images, annotations and categories"
            raise files.error(name, problem, f"{type(error).__name__}: {error}") from None
        if classes and part_classes != classes:
            raise files.error(name, "other categories than train's", part_classes, classes)
        classes = part_classes
        pictures += part_pictures
    return classes, pictures


def _parse(tree: dict[str, Any], part: str, file: Path) -> tuple[tuple[str, ...], list[CocoImage]]:
    categories = sorted((category["id"], str(category["name"])) for category in tree["categories"])
    index = {category_id: i for i, (category_id, _) in enumerate(categories)}
    labels: dict[int, set[int]] = {image["id"]: set() for image in tree["images"]}
    for box in tree["annotations"]:
        image, category = box["image_id"], box["category_id"]
        if image not in labels or category not in index:
            problem = f"annotation {box.get('id')} is of an image or a category that is not listed"
            raise UserError(problem, file=file, found=f"image {image}, category {category}")
        labels[image].add(index[category])
    pictures = [CocoImage(str(i["file_name"]), part, sorted(labels[i["id"]])) for i in tree["images"]]
    return check_class_names((name for _, name in categories), file), pictures


def _assign_splits(options: Options, pictures: list[CocoImage], seed: int) -> list[str]:
    val = [picture.file for picture in pictures if picture.part == "val"]
    if options.split == "paper":
        val_splits = halves(val, seed)
        return [val_splits.get(picture.file, "train") for picture in pictures]
    test = set(val)
    return [
        "test" if p.file in test else assign_validation(p.file, seed, options.validation) for p in pictures
    ]


SOURCE = Source(
    name="coco",
    title="MS COCO 2014 or 2017: multi-label images, 80 classes",
    licence="annotations CC BY 4.0; images: Flickr terms",
    version="2",
    options=Options,
    read=read,
    state=lambda options: release(options).state(options),
)
