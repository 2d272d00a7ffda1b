"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), binary version: 50,000 train and 10,000 test images.

Files: a folder or an archive, `cifar-10-binary.tar.gz` or `cifar-100-binary.tar.gz`. A record has one byte
for each label space, then 3,072 bytes of pixels: 32 x 32 red, then green, then blue. Images become lossless
PNG. Alex Krizhevsky (University of Toronto) distributes the archives with no licence and asks to be cited:
Learning Multiple Layers of Features from Tiny Images, 2009. The Python version consists of pickles, which are
not opened. Without `path` the archive is downloaded and compared with a known SHA-256.

There is no validation split: a seeded share of train is held out. The papers train on all 50,000 rows.
MLCL trains on CIFAR-100 (Table 1) and transfers to CIFAR-10.
"""

from __future__ import annotations

import io
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from mlcl.config.section import Section, UserPath
from mlcl.data.format import LabelSpace
from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common.distribution import Distribution, compare_counts
from mlcl.data.split_assignment import assign_validation
from mlcl.data.writer import ROWS_AT_ONCE
from mlcl.errors import UserError
from mlcl.files import new_file, sha256_of

SIDE = 32
PIXELS = 3 * SIDE * SIDE
URLS = ("https://cave.cs.toronto.edu/kriz/", "https://www.cs.toronto.edu/~kriz/")
TIMEOUT = 30.0
"""Seconds that a server may be silent before the download fails."""


class CifarOptions(Section):
    """The options of the sources `cifar10` and `cifar100`: files, and the share held out for validation."""

    path: UserPath | None = Field(None, description="the folder or archive; default: download it")
    check_counts: bool = Field(True, description="compare with the published counts")
    validation: float = Field(0.1, gt=0, lt=1, description="share of train that is held out")


@dataclass(frozen=True)
class Cifar:
    """CIFAR-10 or CIFAR-100: its archive, the published counts, the files of each split, and label spaces.

    `spaces` maps a label space to the file that names its classes, in the order of a record's label bytes.
    """

    title: str
    archive: str
    sha256: str
    counts: dict[str, int]
    splits: dict[str, tuple[str, ...]]
    spaces: dict[str, str]
    levels: tuple[str, ...] = ()

    def source(self, name: str, summary: str) -> Source[CifarOptions]:
        """Returns the data source of the set."""
        return Source(
            name=name,
            title=f"{self.title}: {summary}",
            origin=f"{self.title}, Alex Krizhevsky, University of Toronto",
            licence="none stated; cite Krizhevsky 2009",
            version="1",
            options=CifarOptions,
            read=self.read,
            state=self.state,
            packages=("pillow",),
        )

    def state(self, options: CifarOptions) -> list[Any]:
        """Returns plain data that changes when one of the files does."""
        if options.path is None:
            return [self.sha256]
        with self._open(options.path) as files:
            return files.state()

    def read(self, options: CifarOptions, split_seed: int, work: Workspace) -> NewDataset:
        """Returns the data set. Raises UserError with the file for missing files and wrong records."""
        urls = [url + self.archive for url in URLS]
        path = options.path or fetch(urls, self.sha256, work.folder / self.archive)
        files = work.enter_context(self._open(path))
        spaces = {
            name: LabelSpace(kind="single", classes=files.class_names(file))
            for name, file in self.spaces.items()
        }
        hierarchy = {"path": LabelSpace(kind="hierarchy", levels=self.levels)} if self.levels else {}
        batches = self._batches(files, spaces, options, split_seed)
        return NewDataset("image", {**spaces, **hierarchy}, batches)

    def _open(self, path: Path) -> Distribution:
        title = f"{self.title}, binary version ({self.archive}; the Python version is pickles: not opened),"
        files = [file for files in self.splits.values() for file in files]
        return Distribution(path, title, [*files, *self.spaces.values()])

    def _batches(
        self, files: Distribution, spaces: dict[str, LabelSpace], options: CifarOptions, seed: int
    ) -> Iterator[dict[str, list[Any]]]:
        counts = {"train": 0, "test": 0, **{name: len(space.classes) for name, space in spaces.items()}}
        for split, names in self.splits.items():
            for name in names:
                for records in _records(files, name, spaces):
                    ids = [f"{split}-{counts[split] + row:05d}" for row in range(len(records))]
                    splits = [split] * len(records)
                    if split == "train":
                        splits = [assign_validation(row_id, seed, options.validation) for row_id in ids]
                    counts[split] += len(records)
                    yield {
                        "id": ids,
                        "split": splits,
                        "image": [_encode_png(record[len(spaces) :]) for record in records],
                        **{space: records[:, column].tolist() for column, space in enumerate(spaces)},
                    }
        if options.check_counts:
            compare_counts(files.path, self.counts, counts)


def _records(files: Distribution, name: str, spaces: dict[str, LabelSpace]) -> Iterator[NDArray[np.uint8]]:
    """Yields up to ROWS_AT_ONCE records at a time as uint8 (rows, label bytes + PIXELS)."""
    size, start = len(spaces) + PIXELS, 0
    with files.open(name) as file:
        while data := file.read(size * ROWS_AT_ONCE):
            if len(data) % size:
                problem = f"record {start + len(data) // size} is cut off"
                raise files.error(name, problem, len(data) % size, size)
            records = np.frombuffer(data, np.uint8).reshape(-1, size)
            for column, (space_name, space) in enumerate(spaces.items()):
                for row in np.flatnonzero(records[:, column] >= space.n_classes)[:1]:
                    problem, allowed = f"unknown class at record {start + row}", f"0 to {space.n_classes - 1}"
                    raise files.error(name, problem, records[row, column], allowed).with_fields(
                        key=space_name
                    )
            yield records
            start += len(records)


def _encode_png(pixels: NDArray[np.uint8]) -> bytes:
    planes = pixels.reshape(3, SIDE, SIDE).transpose(1, 2, 0)
    with io.BytesIO() as file:
        Image.fromarray(np.ascontiguousarray(planes)).save(file, "PNG")
        return file.getvalue()


def fetch(urls: Sequence[str], sha256: str, target: Path) -> Path:
    """Downloads a file from the first of several URLs that has it, and returns `target`.

    Raises UserError, and leaves no file, if no URL has the whole file, or if a file has another SHA-256.
    """
    errors = []
    target.parent.mkdir(parents=True, exist_ok=True)
    for url in urls:
        try:
            with new_file(target) as work_file:
                _download(url, work_file)
                with work_file.open("rb") as file:
                    digest = sha256_of(file)
                if digest != sha256:
                    raise UserError("not the file that was published", file=url, found=digest, allowed=sha256)
            return target
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
            errors.append(f"{url}: {error}")
    raise UserError("cannot be downloaded; get it elsewhere and give its path", found=errors)


def _download(url: str, target: Path) -> None:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response, target.open("xb") as file:
        shutil.copyfileobj(response, file)
        # A connection that ends early looks like the end of the file.
        length = response.headers.get("Content-Length", "")
        if length.isdecimal() and file.tell() < int(length):
            raise ConnectionError(f"{file.tell():,} of {int(length):,} bytes came")


CIFAR10 = Cifar(
    title="CIFAR-10",
    archive="cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    counts={"train": 50_000, "test": 10_000, "class": 10},
    splits={"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    spaces={"class": "batches.meta.txt"},
).source("cifar10", "images of 10 classes")
CIFAR100 = Cifar(
    title="CIFAR-100",
    archive="cifar-100-binary.tar.gz",
    sha256="58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    counts={"train": 50_000, "test": 10_000, "coarse": 20, "fine": 100},
    splits={"train": ("train.bin",), "test": ("test.bin",)},
    spaces={"coarse": "coarse_label_names.txt", "fine": "fine_label_names.txt"},
    levels=("coarse", "fine"),
).source("cifar100", "images under 20 > 100 classes")
