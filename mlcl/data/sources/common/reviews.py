"""Reviews that rate several aspects, for the sources `tripadvisor` and `beeradvocate`.

MLCL (section 4.1 and Table 1) trains on 10,000 and tests on 2,000 reviews, and maps four and five stars to
positive, three to neutral and fewer to negative. It does not say which reviews those are: here a seeded hash
draws them out of those that rate every aspect, and the validation split from the rest. Wang et al. (2011,
section 5.1) also ask for at least 50 words: the option `min_words`. A text with the same words as an earlier
one is left out, so that no two splits share a text: of 12,000 reviews of TripAdvisor 50 are such, half of
which differ in case, spaces or punctuation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from mlcl.data.format import LabelSpace
from mlcl.data.source import NewDataset
from mlcl.data.sources.common.distribution import DistributionOptions
from mlcl.data.split_assignment import digest_of, draw
from mlcl.data.writer import ROWS_AT_ONCE
from mlcl.errors import UserError

PUBLISHED = {"train": 10_000, "test": 2_000}
"""The numbers of training and test reviews in MLCL, Table 1."""
SENTIMENTS = (1.0, 2.0, 3.0)
"""The scale of the label space `sentiment`: negative, neutral, positive."""


class ReviewOptions(DistributionOptions):
    """The options of sources of reviews: which reviews are drawn, and how many for each split."""

    complete: bool = Field(True, description="only reviews that rate every aspect, else those that rate one")
    min_words: int = Field(0, ge=0, description="only reviews of so many words or more")
    train: int = Field(PUBLISHED["train"], ge=1, description="reviews to train on")
    test: int = Field(PUBLISHED["test"], ge=0, description="reviews to test on")
    validation: int = Field(1_000, ge=0, description="reviews to validate on")


class Review(NamedTuple):
    """A review with a rating for each aspect; 0 stands for a missing rating."""

    id: str
    text: str
    ratings: tuple[float, ...]


class ReviewSet(NamedTuple):
    """The aspects and the scale of reviews. Ratings from the first to the last of `neutral` are neutral."""

    aspects: tuple[str, ...]
    scale: tuple[float, ...]
    neutral: tuple[float, float]

    def spaces(self) -> dict[str, LabelSpace]:
        """Returns the label spaces: `rating` for the ratings, and `sentiment` for their sentiments."""
        scales = {"sentiment": SENTIMENTS, "rating": self.scale}
        return {
            name: LabelSpace(kind="aspects", aspects=self.aspects, scale=scale)
            for name, scale in scales.items()
        }

    def sentiments(self, ratings: Iterable[float]) -> list[float]:
        """Converts ratings to 1 (negative), 2 (neutral) or 3 (positive); a missing rating stays 0."""
        lowest, highest = self.neutral
        return [(1.0 + (r >= lowest) + (r > highest)) if r else 0.0 for r in ratings]

    def rating(self, text: Any, place: str, file: Path) -> float:
        """Parses a rating; 0 or less, or no text, gives 0. Raises UserError for one not on the scale."""
        value = str(text or "0").strip()
        try:
            number = max(float(value), 0.0)
        except ValueError:
            number = math.nan
        if number not in (0.0, *self.scale):
            scale = [f"{step:g}" for step in self.scale]
            raise UserError(f"no rating, in the review at {place}", file=file, found=value, allowed=scale)
        return number


def draw_reviews(
    options: ReviewOptions, split_seed: int, kind: ReviewSet, reviews: Callable[[], Iterator[Review]]
) -> NewDataset:
    """Returns a data set of reviews drawn from `reviews()`, which is called twice.

    Raises UserError for too few reviews and, with `check_counts`, for sizes that are not `PUBLISHED`.
    """
    sizes = {"test": options.test, "train": options.train, "validation": options.validation}
    options.compare(PUBLISHED, sizes)
    split_of = draw((review.id for review in _usable_reviews(reviews(), options)), split_seed, sizes)
    if len(split_of) < sum(sizes.values()):
        problem = "fewer reviews than train, test and validation ask for"
        raise UserError(problem, file=options.path, found=len(split_of), allowed=sum(sizes.values()))
    batches = _batches(kind, (review for review in reviews() if review.id in split_of), split_of)
    return NewDataset("text", kind.spaces(), batches)


def decode_western(data: bytes) -> str:
    """Decodes UTF-8 or else Windows-1252; texts that were gathered from the web are in either of them."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def join_lines(fields: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Joins the lines of each field to one text."""
    return {name: "\n".join(lines) for name, lines in fields.items()}


def _usable_reviews(reviews: Iterable[Review], options: ReviewOptions) -> Iterator[Review]:
    is_rated = all if options.complete else any
    digests: set[bytes] = set()
    for review in reviews:
        digest = digest_of(review.text)
        long_enough = len(review.text.split()) >= max(1, options.min_words)
        if long_enough and is_rated(review.ratings) and digest not in digests:
            digests.add(digest)
            yield review


def _batches(kind: ReviewSet, reviews: Iterator[Review], split: dict[str, str]) -> Iterator[dict[str, Any]]:
    while chunk := list(islice(reviews, ROWS_AT_ONCE)):
        yield {
            "id": [review.id for review in chunk],
            "text": [review.text for review in chunk],
            "split": [split[review.id] for review in chunk],
            "sentiment": [kind.sentiments(review.ratings) for review in chunk],
            "rating": [review.ratings for review in chunk],
        }
