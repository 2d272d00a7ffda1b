"""Sources of data sets by name: what each is, its licence, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mlcl.errors import UserError, nearest


@dataclass(frozen=True)
class Source:
    """Where a data set comes from. `module` has `Options` and `write`; with `needs_input` also `state`.

    `version` changes whenever the same options would give other rows. A source that `needs_input` takes files
    of the user's, named by its option `path`; what it writes is checked like any foreign data set.
    """

    name: str
    title: str
    licence: str
    needs_input: bool
    version: str
    packages: tuple[str, ...] = ()

    @property
    def module(self) -> Any:
        """The source's module, imported when it is wanted."""
        return import_module(f"mlcl.data.sources.{self.name}")

    @property
    def options(self) -> type[BaseModel]:
        """The model of its options."""
        model: type[BaseModel] = self.module.Options
        return model

    def write(self, folder: Path, options: BaseModel, split_seed: int) -> None:
        """Write the data set into `folder`."""
        self.module.write(folder, options, split_seed)

    def full_version(self) -> str:
        """The version with those of the packages that the rows come from."""
        return " ".join([self.version, *(f"{name} {metadata.version(name)}" for name in self.packages)])


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "icd10cm",
            "ICD-10-CM diagnosis descriptions: chapter > section > category",
            "public domain",
            False,
            "1",
            ("simple-icd-10-cm",),
        ),
        Source(
            "digits",
            "scenes of one to three handwritten digits: multi-label images",
            "CC BY 4.0",
            False,
            "1",
            ("scikit-learn", "pillow", "numpy"),
        ),
        Source("csv", "a CSV file of texts or image files, labels by column", "the file's own", True, "1"),
        Source("parquet", "a Parquet file of texts or images, labels by column", "the file's own", True, "1"),
        Source("image_folder", "image files in a folder a class", "the files' own", True, "1"),
        Source(
            "cifar10",
            "CIFAR-10: images of 10 classes",
            "none stated; cite Krizhevsky 2009",
            True,
            "1",
            ("pillow",),
        ),
        Source(
            "cifar100",
            "CIFAR-100: images under 20 > 100 classes",
            "none stated; cite Krizhevsky 2009",
            True,
            "1",
            ("pillow",),
        ),
        Source(
            "deepfashion",
            "DeepFashion Category and Attribute Prediction: 3 > 50 kinds of garments",
            "non-commercial research, by agreement",
            True,
            "1",
        ),
        Source(
            "voc2007",
            "PASCAL VOC 2007: multi-label images, 20 classes",
            "images: Flickr terms, for research",
            True,
            "2",
        ),
        Source(
            "coco",
            "MS COCO 2014 or 2017: multi-label images, 80 classes",
            "annotations CC BY 4.0; images: Flickr terms",
            True,
            "2",
        ),
        Source(
            "nuswide",
            "NUS-WIDE: multi-label images, 81 concepts",
            "for research; images: Flickr terms",
            True,
            "1",
        ),
        Source("tripadvisor", "TripAdvisor hotel reviews: seven rated aspects", "for research", True, "2"),
        Source("beeradvocate", "BeerAdvocate beer reviews: five rated aspects", "for research", True, "2"),
        Source("aapd", "AAPD arXiv abstracts: 54 subjects, multi-label", "not stated", True, "1"),
        Source("rcv1", "RCV1-V2 newswire stories: 103 topics, multi-label", "for research", True, "1"),
        Source(
            "reuters21578", "Reuters-21578 ModApte R90: 90 topics, multi-label", "for research", True, "2"
        ),
        Source(
            "goemotions",
            "GoEmotions comments: 28 emotions > 7 Ekman > 4 sentiments, multi-label",
            "Apache 2.0 and CC BY 4.0",
            True,
            "1",
        ),
        Source(
            "mimic3",
            "MIMIC-III v1.4: discharge summaries with ICD-9 codes",
            "PhysioNet Credentialed Health Data License 1.5.0",
            True,
            "1",
        ),
        Source(
            "mimic4",
            "MIMIC-IV v2.2: discharge summaries with ICD-9 or ICD-10 codes",
            "PhysioNet Credentialed Health Data License 1.5.0",
            True,
            "1",
        ),
    )
}


def find_source(name: str) -> Source:
    """A source by name. Raises UserError that names the nearest for an unknown one."""
    if name not in SOURCES:
        near = nearest(name, SOURCES)
        hint = f"; did you mean {near}?" if near else ""
        raise UserError(f"unknown source{hint}", key="data.source", found=name, allowed=sorted(SOURCES))
    return SOURCES[name]
