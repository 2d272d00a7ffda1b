"""The extractor TF-IDF: weighted counts of sequences of words or characters, with weights from training rows.

Shapes: N texts, F n-grams.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlcl.errors import UserError
from mlcl.models.encoders.features import TfidfInput
from mlcl.training.features.extractor import ONE_BY_ONE, BatchRun, Contents, Kind, Matrix
from mlcl.training.precision import Precision

TERMS, IDF = "terms.json", "idf.npy"


@dataclass(frozen=True, eq=False)
class Tfidf:
    """TF-IDF rows of unit length: x_nf = (1 + ln count_nf) idf_f, or 0 if n-gram f is not in text n.

    idf_f = ln((1 + N) / (1 + N_f)) + 1, where N_f of the N training texts contain f. Words are lower-cased
    and have at least two letters or digits. Character n-grams are of one word with a space on both sides.
    Columns are sorted by N_f in descending order, then alphabetically. Source: scikit-learn's TfidfVectorizer
    with sublinear_tf.
    """

    section: TfidfInput
    terms: list[str]
    idf_F: NDArray[np.float32]

    @cached_property
    def vectorizer(self) -> Any:
        """The fitted vectorizer of scikit-learn."""
        vectorizer = _build_vectorizer(self.section, vocabulary=self.terms)
        vectorizer.idf_ = self.idf_F
        return vectorizer

    @property
    def columns(self) -> int:
        """The number of columns F."""
        return len(self.terms)

    def __call__(self, contents: Sequence[str], _: BatchRun = ONE_BY_ONE) -> Matrix:
        """Returns the sparse rows (N, F) float32 of texts."""
        from scipy.sparse import csr_array

        rows = csr_array(self.vectorizer.transform(contents))
        rows.sort_indices()
        return rows

    def save(self, folder: Path) -> None:
        """Writes the n-grams in column order and their idf (F,) float32."""
        (folder / TERMS).write_text(json.dumps(self.terms, ensure_ascii=False), encoding="utf-8")
        np.save(folder / IDF, self.idf_F)


def _build_vectorizer(section: TfidfInput, **terms: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        analyzer=section.analyzer,
        ngram_range=(section.shortest, section.ngrams),
        sublinear_tf=True,
        dtype=np.float32,
        **terms,
    )


def _fit(section: TfidfInput, contents: Contents | None, _: torch.device, __: Precision) -> Tfidf:
    vectorizer = _build_vectorizer(section, max_features=section.max_features)
    try:
        vectorizer.fit(contents)
    except ValueError as error:
        raise UserError("no word in the training texts", key="encoder.tfidf", found=error) from None
    order = np.argsort(vectorizer.idf_, kind="stable")
    terms = vectorizer.get_feature_names_out()[order].tolist()
    return Tfidf(section, terms, vectorizer.idf_[order].astype(np.float32))


def _load(section: TfidfInput, folder: Path, _: torch.device) -> Tfidf:
    terms = json.loads((folder / TERMS).read_text(encoding="utf-8"))
    return Tfidf(section, terms, np.load(folder / IDF, allow_pickle=False))


TFIDF = Kind(_fit, _load, lambda _: {"scikit-learn": version("scikit-learn")}, learns=True)
