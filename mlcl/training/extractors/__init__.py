"""Frozen extractors, one a module: functions from texts, images or vectors to rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping

from mlcl.models.feature_inputs import InputName
from mlcl.training.extractors.column import COLUMN
from mlcl.training.extractors.extractor import Extractor, Kind, Matrix
from mlcl.training.extractors.image import IMAGE
from mlcl.training.extractors.tfidf import TFIDF
from mlcl.training.extractors.transformer import TRANSFORMER

__all__ = ["EXTRACTORS", "Extractor", "Kind", "Matrix"]

EXTRACTORS: Mapping[InputName, Kind] = {
    "tfidf": TFIDF,
    "transformer": TRANSFORMER,
    "image": IMAGE,
    "column": COLUMN,
}
