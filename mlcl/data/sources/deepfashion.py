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

from typing import Any

from pydantic import Field

from mlcl.config.section import UserPath
from mlcl.data.format import LabelSpace
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.split_assignment import SPLIT_NAMES
from mlcl.data.writer import in_batches

COUNTS = {"train": 209_222, "validation": 40_000, "test": 40_000, "categories": 50}
"""The published number of rows of each split, and of categories."""
TYPES = ("upper-body", "lower-body", "full-body")
CLOTH = ("Anno_coarse/list_category_cloth.txt", "Anno/list_category_cloth.txt")
IMAGES = ("Anno_coarse/list_category_img.txt", "Anno/list_category_img.txt")
PARTITION = ("Eval/list_eval_partition.txt",)
RELEASE = Release(
    "DeepFashion (Category and Attribute Prediction Benchmark, CUHK Multimedia Lab)",
    [CLOTH, IMAGES, PARTITION],
    more=lambda _: ("Img/img", "img"),
)


class Options(DistributionOptions):
    """The options of the source `deepfashion`: its files."""

    path: UserPath = Field(description="the folder with Anno_coarse, Eval and Img")


def read(options: Options, _split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set with the spaces `type` and `category` and the hierarchy `path`."""
    files = work.enter_context(RELEASE.open(options.path))
    cloth = _read_table(files, CLOTH)
    types = [_parse_number(files, CLOTH, line, value, len(TYPES)) for line, _, value in cloth]
    category = {
        image: _parse_number(files, IMAGES, line, value, len(cloth))
        for line, image, value in _read_table(files, IMAGES)
    }
    split = {image: _parse_split(files, line, value) for line, image, value in _read_table(files, PARTITION)}
    if category.keys() != split.keys():
        image = min(category.keys() ^ split.keys())
        raise files.error(PARTITION, "one list has an image that another lacks", image)
    counts = {name: list(split.values()).count(name) for name in SPLIT_NAMES.values()}
    options.compare(COUNTS, {**counts, "categories": len(cloth)})
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
    # In the benchmark's own split, the rarest categories may have no training image.
    return NewDataset("image", spaces, batches, allow_untrained=True)


def _read_table(files: Distribution, names: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Returns (line, name, value) of each row. Raises UserError for a repeated name or a wrong row count."""
    declared_count = next((" ".join(words) for _, words in files.fields(*names)), "")
    rows: dict[str, tuple[int, str, str]] = {}
    for line, (name, value) in files.fields(*names, width=2, skip=2):
        if name in rows:
            raise files.error(names, f"listed twice at line {line}", name, "each name once")
        rows[name] = line, name, value
    if declared_count != str(len(rows)):
        raise files.error(names, "not the number of rows at line 1", declared_count, len(rows))
    return list(rows.values())


def _parse_number(files: Distribution, names: tuple[str, ...], line: int, value: str, count: int) -> int:
    """Converts a number from 1 to `count` to an index from 0. Raises UserError for other values."""
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= count):
        raise files.error(names, f"not a number of the list at line {line}", value, f"1 to {count}")
    return int(value) - 1


def _parse_split(files: Distribution, line: int, value: str) -> str:
    if value not in SPLIT_NAMES:
        raise files.error(PARTITION, f"unknown split at line {line}", value, ["train", "val", "test"])
    return SPLIT_NAMES[value]


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
