"""TripAdvisor hotel reviews with ratings of seven aspects (Wang, Lu and Zhai 2010), for research.

The distribution of the authors' LARA project: a folder with one file per hotel, `hotel_<number>.dat` (2010)
with lines of `<Author>`, `<Content>`, `<Date>` and the ratings in `TAGS` and a blank line between
reviews, or `<number>.json` (2011), an object with `Reviews`. -1 and 0 stand for a rating that was not given.
A call of the site's script (`showReview(16661788, 'full');`) ends some texts and is cut off; markup of the
page stands on lines between the tags and is skipped; reviews repeat; letters outside ASCII were partly
garbled when the set was made, and stay so. Business service is no aspect of MLCL and is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mlcl.data.source import NewDataset, Source, Workspace
from mlcl.data.sources.common import reviews
from mlcl.data.sources.common.distribution import hash_of_files
from mlcl.errors import UserError

TAGS = {
    "overall": "Overall",
    "value": "Value",
    "rooms": "Rooms",
    "location": "Location",
    "cleanliness": "Cleanliness",
    "checkin": "Check in / front desk",
    "service": "Service",
}
"""Maps an aspect to the tag of its rating; the aspects and their names are MLCL's."""
REVIEWS = reviews.ReviewSet(aspects=tuple(TAGS), scale=(1, 2, 3, 4, 5), neutral=(3, 3))
HEADS = ("Author", "Content", "Date", *TAGS.values())
"""The tags that are read."""
TAG = re.compile(rf"<({'|'.join(map(re.escape, HEADS))})>(.*)")
MARKUP = re.compile(r"</?[A-Za-z!]")
SCRIPT = re.compile(r"(?<!\s)\s*showReview\(\d+, '\w+'\);\s*")
Fields = tuple[str, Mapping[str, Any]]
"""A review before it is parsed: its place in the file, and a mapping of tags to texts."""


def state(options: reviews.ReviewOptions) -> str:
    """Returns a hash of the names, sizes and modification times of all files."""
    return hash_of_files(options.path, hotels(options.path))


def read(options: reviews.ReviewOptions, split_seed: int, _work: Workspace) -> NewDataset:
    """Returns the data set with the spaces `sentiment` (1 to 3) and `rating` (1 to 5), 0 for missing."""
    return reviews.draw_reviews(options, split_seed, REVIEWS, partial(_reviews, options.path))


def hotels(path: Path) -> list[Path]:
    """Returns all hotels' `.dat` files, or else `.json` files. Raises UserError for none or a hotel twice."""
    root = path.resolve()
    for pattern in ("hotel_*.dat", "*.json"):
        files = [file for file in root.rglob(pattern) if file.resolve().is_relative_to(root)]
        places: dict[str, Path] = {}
        for file in sorted(files):
            # Reviews of two files of one hotel would share ids.
            if places.setdefault(file.stem, file) != file:
                raise UserError("this hotel appears twice", file=file, found=places[file.stem])
        if files:
            return sorted(files)
    expected = "a folder with hotel_<number>.dat or <number>.json, from the authors' page of LARA"
    raise UserError("no hotels of TripAdvisor here", file=path, key="data.options.path", allowed=expected)


def _reviews(path: Path) -> Iterator[reviews.Review]:
    for file in hotels(path):
        try:
            content = reviews.decode_western(file.read_bytes())
        except OSError as error:
            raise UserError("cannot be read", file=file, found=error) from None
        entries = _json_reviews(content, file) if file.suffix == ".json" else _tagged_reviews(content)
        for number, (place, values) in enumerate(entries):
            title = str(values.get("Title") or "").strip('“”" ')
            body = SCRIPT.sub(" ", str(values.get("Content") or "")).strip()
            text = f"{title}\n{body}" if title and body else body
            ratings = [REVIEWS.rating(values.get(tag), place, file) for tag in TAGS.values()]
            yield reviews.Review(f"{file.stem}/{number}", text, tuple(ratings))


def _tagged_reviews(text: str) -> Iterator[Fields]:
    """Yields the reviews of a `.dat` file; lines before the first author are about the hotel, and skipped."""
    tag, place, values = "", "", dict[str, list[str]]()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if match := TAG.match(line):
            tag = match[1]
            if tag == "Author":
                if place:
                    yield place, reviews.join_lines(values)
                place, values = f"line {number}", {}
            values[tag] = [match[2]]
        elif tag == "Content" and not MARKUP.match(line):
            values[tag].append(line)
    if place:
        yield place, reviews.join_lines(values)


def _json_reviews(text: str, file: Path) -> Iterator[Fields]:
    try:
        for number, review in enumerate(json.loads(text)["Reviews"]):
            yield f"Reviews[{number}]", {**review, **review["Ratings"]}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        allowed = "an object with Reviews, each with Ratings and Content"
        raise UserError("no hotel of TripAdvisor", file=file, found=repr(error), allowed=allowed) from None


SOURCE = Source(
    name="tripadvisor",
    title="TripAdvisor hotel reviews: seven rated aspects",
    origin="TripAdvisor data set of the LARA project (Wang, Lu and Zhai 2010)",
    licence="for research; cite Wang, Lu and Zhai 2010",
    version="2",
    options=reviews.ReviewOptions,
    read=read,
    state=state,
)
