"""BeerAdvocate beer reviews with ratings of five aspects (McAuley, Leskovec and Jurafsky 2012), for research.

SNAP at Stanford distributed them as `beeradvocate.txt.gz`: lines of `beer/name: ...`, `review/aroma: 4.5`,
`review/text: ...`, a blank line between reviews; McAuley's page at UCSD has `beeradvocate.json.gz`, a Python
dictionary a line, which is read as a literal and never run. The source reads either file, compressed
or not, in a folder.
Ratings are 1 to 5 in halves, and a few are 0 for missing. Tabs in a text stand for the line breaks it had.
A field may continue on further lines, and not every byte is UTF-8.

MLCL maps whole stars to sentiments and does not say how half stars are mapped. By default they are rounded
down: ratings from 4 are positive, 3 and 3.5 neutral, and those below 3 negative. `half_stars: up` makes 3.5
positive and 2.5 neutral.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

from pydantic import Field

from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common import reviews
from mlcl.data.sources.common.distribution import Distribution, Release

FILES = tuple(
    f"{name}.{ending}"
    for name in ("beeradvocate", "Beeradvocate")
    for ending in ("txt.gz", "txt", "json.gz", "json")
)
RELEASE = Release("BeerAdvocate (SNAP at Stanford, or McAuley's page at UCSD)", [FILES])
NEUTRAL = {"down": (3.0, 3.5), "up": (2.5, 3.0)}
"""The lowest and the highest neutral rating, by the way in which half stars are rounded."""
REVIEWS = reviews.ReviewSet(
    aspects=("appearance", "aroma", "palate", "taste", "overall"),
    scale=(1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5),
    neutral=NEUTRAL["down"],
)
COUNTS = {"reviews": 1_586_614}
"""The number of reviews in the file; the paper and SNAP's page say 1,586,259."""


class BeerOptions(reviews.ReviewOptions):
    """The options of the source `beeradvocate`: the reviews to draw, and how half stars are rounded."""

    half_stars: Literal["down", "up"] = Field(
        "down", description="rounding before the sentiment: 3.5 is neutral (down) or positive (up)"
    )


def read(options: BeerOptions, split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set with the spaces `sentiment` (1 to 3) and `rating` (1 to 5), 0 for missing."""
    files = work.enter_context(RELEASE.open(options.path))
    kind = REVIEWS._replace(neutral=NEUTRAL[options.half_stars])
    return reviews.draw_reviews(options, split_seed, kind, partial(_reviews, files, options))


def _reviews(files: Distribution, options: reviews.ReviewOptions) -> Iterator[reviews.Review]:
    name = files.find_first(*FILES) or ""
    file = files.file(name)
    fields = _literals if ".json" in name else _blocks
    n_reviews = 0
    for line, values in fields(files, name):
        n_reviews += 1
        ratings = [REVIEWS.rating(values.get(f"review/{a}"), f"line {line}", file) for a in REVIEWS.aspects]
        yield reviews.Review(f"line-{line}", str(values.get("review/text") or "").strip(), tuple(ratings))
    options.compare(COUNTS, {"reviews": n_reviews})


def _blocks(files: Distribution, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the reviews of the text file, each with the line on which it begins."""
    with files.open(name) as lines:
        first_line, key, values = 0, "", dict[str, list[str]]()
        for number, line in enumerate(lines, 1):
            text = reviews.decode_western(line).rstrip("\r\n")
            start, colon, value = text.partition(":")
            if start == "beer/name":
                if values:
                    yield first_line, reviews.join_lines(values)
                first_line, values = number, {}
            if colon and start.startswith(("beer/", "review/")) and " " not in start:
                key, values[start] = start, [value.strip(" ")]
            elif values:
                values[key].append(text)
        if values:
            yield first_line, reviews.join_lines(values)


def _literals(files: Distribution, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with files.open(name) as lines:
        for number, line in enumerate(lines, 1):
            try:
                values = ast.literal_eval(reviews.decode_western(line))
                if not isinstance(values, dict):
                    raise ValueError("not a dictionary")
            except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
                raise files.error(name, f"no review at line {number}", error) from None
            yield number, values


SOURCE = Source(
    name="beeradvocate",
    title="BeerAdvocate beer reviews: five rated aspects",
    origin="BeerAdvocate reviews (McAuley, Leskovec and Jurafsky 2012)",
    licence="for research; cite McAuley, Leskovec and Jurafsky 2012",
    version="2",
    options=BeerOptions,
    read=read,
    state=RELEASE.state,
)
