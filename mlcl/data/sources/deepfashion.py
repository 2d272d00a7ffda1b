"""DeepFashion, Category and Attribute Prediction Benchmark (Liu et al. 2016): 289,222 images of garments.

Files: `list_category_cloth.txt` and `list_category_img.txt` in `Anno_coarse` (older copies: `Anno`),
`Eval/list_eval_partition.txt`, and the images of `Img/img.zip`, unpacked to `Img/img` (or `img`). The Chinese
University of Hong Kong gives them out for non-commercial research under an agreement: they are not downloaded
here.

Every list begins with the number of its rows and a line of column names. There are 50 categories (a few have
no image), each of type 1, 2 or 3: upper-body, lower-body or full-body clothes. They give the label spaces
`type` and `category` and the hierarchy `path`. The benchmark's own 209,222 / 40,000 / 40,000 is the split;
MLCL, Table 1, has it as 200K train and 40K test with 50 classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field

from mlcl.config.section import UserPath
from mlcl.data.format import LabelSpace
from mlcl.data.source import NewDataset, Source
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.tables.splits import SPLIT_NAMES
from mlcl.data.writer import in_batches
from mlcl.errors import UserError

COUNTS = {"train": 209_222, "validation": 40_000, "test": 40_000, "categories": 50}
"""Published rows of each split, and categories."""
TYPES = ("upper-body", "lower-body", "full-body")
CLOTH = ("Anno_coarse/list_category_cloth.txt", "Anno/list_category_cloth.txt")
IMAGES = ("Anno_coarse/list_category_img.txt", "Anno/list_category_img.txt")
PARTITION = ("Eval/list_eval_partition.txt",)
RELEASE = Release(
    "DeepFashion (Category and Attribute Prediction Benchmark, CUHK Multimedia Lab)",
    [CLOTH, IMAGES, PARTITION],
    more=("Img/img", "img"),
)


class Options(DistributionOptions):
    """Where the files are."""

    path: UserPath = Field(description="the folder with Anno_coarse, Eval and Img")


@contextmanager
def read(options: Options, _split_seed: int, _scratch: Path) -> Iterator[NewDataset]:
    """The data set. Raises UserError with file and line for missing files and wrong lines."""
    with RELEASE.open(options.path) as files:
        cloth = _table(files, CLOTH)
        types = [_number(files, CLOTH, line, value, len(TYPES)) for line, _, value in cloth]
        category = {
            image: _number(files, IMAGES, line, value, len(cloth))
            for line, image, value in _table(files, IMAGES)
        }
        split = {image: _split(files, line, value) for line, image, value in _table(files, PARTITION)}
        if category.keys() != split.keys():
            image = min(category.keys() ^ split.keys())
            raise UserError(
                "one list has an image that another lacks", file=files.file(PARTITION[0]), found=image
            )
        found = {name: list(split.values()).count(name) for name in SPLIT_NAMES.values()}
        options.compare(COUNTS, {**found, "categories": len(cloth)})
        ids = sorted(category)
        columns: dict[str, list[Any]] = {
            "id": ids,
            "split": [split[i] for i in ids],
            "type": [types[category[i]] for i in ids],
            "category": [category[i] for i in ids],
        }
        spaces = {
            "type": LabelSpace(kind="single", classes=TYPES),
            "category": LabelSpace(kind="single", classes=tuple(name for _, name, _ in cloth)),
            "path": LabelSpace(kind="hierarchy", levels=("type", "category")),
        }
        batches = in_batches(columns, "image", (files.read(f"Img/{i}", i) for i in ids))
        # The split is the benchmark's own; its rarest categories have a handful of images.
        yield NewDataset("image", spaces, batches, allow_untrained=True)


def _table(files: Distribution, names: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """The lines of a list with their numbers and two fields; the first line is the number of rows."""
    lines = [(number, line.split()) for number, line in files.lines(*names) if line.strip()]
    seen: set[str] = set()
    for number, fields in lines[2:]:
        if len(fields) != 2:
            raise _wrong(files, names, number, "wrong number of fields", " ".join(fields), 2)
        if fields[0] in seen:
            raise _wrong(files, names, number, "listed twice", fields[0], "each name once")
        seen.add(fields[0])
    declared = " ".join(lines[0][1]) if lines else ""
    if declared != str(len(lines[2:])):
        raise _wrong(files, names, 1, "not the number of rows", declared, len(lines[2:]))
    return [(number, fields[0], fields[1]) for number, fields in lines[2:]]


def _number(files: Distribution, names: tuple[str, ...], line: int, value: str, count: int) -> int:
    """A number from 1 to `count` as an index from 0."""
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= count):
        raise _wrong(files, names, line, "not a number of the list", value, f"1 to {count}")
    return int(value) - 1


def _split(files: Distribution, line: int, value: str) -> str:
    if value not in SPLIT_NAMES:
        raise _wrong(files, PARTITION, line, "unknown split", value, ["train", "val", "test"])
    return SPLIT_NAMES[value]


def _wrong(
    files: Distribution, names: tuple[str, ...], line: int, problem: str, found: object, allowed: object
) -> UserError:
    return UserError(f"{problem} at line {line}", file=files.file(*names), found=found, allowed=allowed)


SOURCE = Source(
    name="deepfashion",
    title="DeepFashion Category and Attribute Prediction: 3 > 50 kinds of garments",
    origin="DeepFashion, Category and Attribute Prediction Benchmark",
    licence="non-commercial research, by agreement",
    version="1",
    options=Options,
    read=read,
    state=RELEASE.state,
)
