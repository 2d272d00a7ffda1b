"""Prepares a user's data in the home, and returns them as the section `data` of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mlcl.data import Dataset, prepare
from mlcl.data.description import Description, describe
from mlcl.data.format import INFO_FILE, DatasetInfo
from mlcl.service.starter.first_job import FirstJob, first_job
from mlcl.service.starter.table_options import Ask, UserOptions, table_options


@dataclass(frozen=True)
class UserData:
    """A prepared data set of a user.

    Attributes:
        folder: The folder of the prepared data set.
        section: The section `data` of a job that reads it.
        options: The options of its source; empty if the user gave a prepared data set.
        found: Lines that describe what was recognised in the data.
    """

    folder: Path
    section: Mapping[str, Any]
    options: Mapping[str, Any]
    found: Sequence[str]

    @property
    def info(self) -> DatasetInfo:
        """The content of the data set's `dataset.json`."""
        return Dataset.open(self.folder).info

    def description(self) -> Description:
        """Returns statistics of contents and labels, see `describe`; reads the training rows."""
        return describe(self.folder)

    def first_job(
        self, labels: str | None, description: Description, encoder: Mapping[str, Any] | None = None
    ) -> FirstJob:
        """Returns the first job on the data, see `first_job`."""
        data, gpu = dict(self.section), torch.cuda.is_available()
        return first_job(self.info, description, labels, data, gpu=gpu, encoder=encoder)


def prepare_user_data(
    paths: Sequence[Path], home: Path, given: UserOptions, ask: Ask | None = None
) -> UserData:
    """Recognises data (tables, a folder of images, a prepared set) and prepares them, see `start`."""
    path = paths[0]
    if (path / INFO_FILE).is_file():
        return UserData(path, {"path": str(path)}, {}, [f"{path}: a prepared data set"])
    if path.is_dir():
        source, found = "image_folder", [f"{path}: images in a folder a class"]
        options: dict[str, Any] = {"path": str(path), **given.only(["allow_untrained"])}
    else:
        source, options, found = table_options(paths, given, ask)
    folder = prepare(source, home / "data", options)
    return UserData(folder, {"source": source, "options": options}, options, found)
