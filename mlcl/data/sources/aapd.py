"""AAPD: abstracts of computer science papers from arXiv with their subjects (Yang et al. 2018), for research.

Files of the authors of SGM: `text_train`, `text_val` and `text_test` have an abstract per line, in tokens and
lower case; `label_train`, `label_val` and `label_test` have the subjects of each, separated by spaces (cs.IT
math.IT). Some training rows name a subject twice; it counts once.

The published split has 53,840, 1,000 and 1,000 rows. Similarity-Dissimilarity (Table 3) has 37.8k, 6.7k and
11.3k instead and does not publish which rows: `split: paper` divides all rows in these shares by a seeded
hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal

from pydantic import Field

from mlcl.data.source import NewDataset, Source, Workspace, count, indices, space_of_rows
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.split_assignment import assign, shares_note, train_every_class
from mlcl.data.writer import in_batches

PARTS = {"train": "train", "val": "validation", "test": "test"}
"""Maps the endings of the files' names to the published splits."""
RELEASE = Release(
    "AAPD (Yang et al. 2018, from the authors of SGM)",
    [f"{kind}_{part}" for part in PARTS for kind in ("text", "label")],
)
COUNTS = {"train": 53_840, "validation": 1_000, "test": 1_000, "classes": 54, "labels a row": 2.41}
PAPER_SHARES = (37.8 / 55.8, 6.7 / 55.8, 11.3 / 55.8)


class Options(DistributionOptions):
    """The options of the source `aapd`: its files, and how rows are split."""

    split: Literal["published", "paper"] = Field("published", description="paper: 37.8k, 6.7k, 11.3k by hash")


def read(options: Options, split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set with the multi-label space `subjects`."""
    files = work.enter_context(RELEASE.open(options.path))
    parts = {part: [line.split() for line in _lines(files, f"label_{part}")] for part in PARTS}
    rows = {part: len(names) for part, names in parts.items()}
    names = list(chain.from_iterable(parts.values()))
    ids = [f"{part}-{row}" for part in PARTS for row in range(rows[part])]
    splits = [split for part, split in PARTS.items() for _ in range(rows[part])]
    options.compare(COUNTS, count(splits, names))
    space = space_of_rows(names, options.path)
    subjects = indices(names, space)
    notes: list[str] = []
    if options.split == "paper":
        splits = [assign(row_id, split_seed, PAPER_SHARES) for row_id in ids]
        train_every_class(splits, [subjects], ids, split_seed)
        reason = "of few rows a hash gives other shares, and every subject has a training row"
        notes = shares_note(splits, PAPER_SHARES, reason)
    columns: dict[str, list[Any]] = {"id": ids, "split": splits, "subjects": subjects}
    batches = in_batches(columns, "text", _texts(files, rows))
    return NewDataset("text", {"subjects": space}, batches, notes, not options.check_counts)


def _texts(files: Distribution, rows: dict[str, int]) -> Iterator[str]:
    for part, n_rows in rows.items():
        n_lines = 0
        for text in _lines(files, f"text_{part}"):
            yield text
            n_lines += 1
        if n_lines != n_rows:
            raise files.error(f"text_{part}", f"not as many lines as label_{part}", n_lines, n_rows)


def _lines(files: Distribution, name: str) -> Iterator[str]:
    """Yields the lines of a file. Raises UserError for an empty line."""
    for number, line in files.lines(name):
        if not line.strip():
            raise files.error(name, f"line {number} is empty")
        yield line.strip()


SOURCE = Source(
    name="aapd",
    title="AAPD arXiv abstracts: 54 subjects, multi-label",
    origin="AAPD (Yang et al. 2018)",
    licence="not stated; cite Yang et al. 2018",
    version="1",
    options=Options,
    read=read,
    state=RELEASE.state,
)
