"""RCV1-V2: Reuters newswire stories of 1996 and 1997 with topics (Lewis et al. 2004), for research.

The distribution is the on-line appendices of the article: `lyrl2004_tokens_train.dat` and
`lyrl2004_tokens_test_pt0.dat` to `pt3.dat` (appendix 12: `.I` with the number, `.W`, stemmed words without
stop words in scrambled order, a blank line) and `rcv1-v2.topics.qrels` (appendix 8: lines of a topic, a
number and 1), each also as `.gz`. The stories' own wording needs an agreement with NIST and is not
read.

LYRL2004 trains on the numbers up to 26150 and tests on the rest; two of the 103 topics have no training
story. SGM (Yang et al. 2018), whose setting kNN-MLTC follows, splits at random and publishes only how many:
`split: random` draws 1,000 for validation and 1,000 for the test by a seeded hash.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from mlcl.data.source import NewDataset, Source, Workspace, count, indices, space_of_rows
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.split_assignment import draw, hold_out_rows
from mlcl.data.writer import ROWS_AT_ONCE
from mlcl.errors import UserError

STORIES = [
    (name, f"{name}.gz")
    for name in ("lyrl2004_tokens_train.dat", *(f"lyrl2004_tokens_test_pt{part}.dat" for part in range(4)))
]
TOPICS = ("rcv1-v2.topics.qrels", "rcv1-v2.topics.qrels.gz")
RELEASE = Release("RCV1-V2 (Lewis et al. 2004, appendices 8 and 12 of the article)", [*STORIES, TOPICS])
LAST_TRAINING = 26_150
"""The highest number of a training story in LYRL2004."""
COUNTS = {"train": 23_149, "test": 781_265, "classes": 103, "labels a row": 3.24}
RANDOM = {"validation": 1_000, "test": 1_000}


class Options(DistributionOptions):
    """The options of the source `rcv1`: its files, and how rows are split."""

    split: Literal["lyrl2004", "random"] = Field("lyrl2004", description="random: all but 2,000 for training")
    validation: float = Field(0.1, ge=0, lt=1, description="share of the training stories, with lyrl2004")


class TokenStory(NamedTuple):
    """A story: the file and the line at which it begins, its number, and its words."""

    file: Path
    line: int
    number: str
    words: str


def read(options: Options, split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set with the multi-label space `topics`."""
    files = work.enter_context(RELEASE.open(options.path))
    topics = _read_topics(files)
    names, ids = list(topics.values()), list(topics)
    splits = ["train" if int(number) <= LAST_TRAINING else "test" for number in ids]
    options.compare(COUNTS, count(splits, names))
    space = space_of_rows(names, files.file(TOPICS[0]))
    labels = indices(names, space)
    if options.split == "random":
        _check_story_count(len(ids), options)
        split_of = draw(ids, split_seed, RANDOM)
        splits = [split_of.get(number, "train") for number in ids]
    else:
        hold_out_rows(splits, [labels], ids, split_seed, options.validation)
    rows = {number: (split, row) for number, split, row in zip(ids, splits, labels, strict=True)}
    return NewDataset("text", {"topics": space}, _batches(files, rows), allow_untrained=True)


def _check_story_count(stories: int, options: Options) -> None:
    """Raises UserError where the random split would leave no story for training."""
    if stories <= sum(RANDOM.values()):
        sizes = " and ".join(f"{size:,} for {split}" for split, size in RANDOM.items())
        raise UserError(
            "too few stories for the random split",
            file=options.path,
            key="data.options.split",
            found=f"{stories:,}",
            allowed=f"more than {sum(RANDOM.values()):,}: {sizes}, the rest for training; or split lyrl2004",
        )


def _read_topics(files: Distribution) -> dict[str, list[str]]:
    """Returns the topics of each story, in the order of the file."""
    topics: dict[str, list[str]] = {}
    for line, text in files.lines(*TOPICS, encoding="latin-1"):
        fields = text.split()
        if len(fields) != 3 or not fields[1].isdecimal() or fields[2] != "1":
            raise files.error(TOPICS, f"line {line} is no topic, number and 1", text)
        # Millions of lines repeat a hundred topics.
        topics.setdefault(fields[1], []).append(sys.intern(fields[0]))
    return topics


def _batches(files: Distribution, rows: dict[str, tuple[str, list[int]]]) -> Iterator[dict[str, list[Any]]]:
    """Yields rows in the order of the story files.

    A story is removed from `rows` when it is read, so that stories that come twice or are missing are found.
    """
    stories = chain.from_iterable(_stories(files, *names) for names in STORIES)
    while chunk := list(islice(stories, ROWS_AT_ONCE)):
        chunk_rows = [_pop_story(rows, story) for story in chunk]
        yield {
            "id": [story.number for story in chunk],
            "text": [story.words for story in chunk],
            "split": [split for split, _ in chunk_rows],
            "topics": [labels for _, labels in chunk_rows],
        }
    if rows:
        problem = f"{len(rows):,} stories have topics and no words"
        raise UserError(problem, file=files.path, found=list(islice(rows, 5)))


def _pop_story(rows: dict[str, tuple[str, list[int]]], story: TokenStory) -> tuple[str, list[int]]:
    if story.number not in rows:
        problem = f"the story at line {story.line} has no topics or is there twice"
        raise UserError(problem, file=story.file, found=story.number)
    return rows.pop(story.number)


def _stories(files: Distribution, *names: str) -> Iterator[TokenStory]:
    file = files.file(*names)
    line, number, words = 0, "", list[str]()
    for line_number, text in files.lines(*names, encoding="latin-1"):
        if text.startswith(".I "):
            if number:
                yield TokenStory(file, line, number, " ".join(words))
            line, number, words = line_number, text[3:].strip(), []
        elif text.strip() != ".W":
            words += text.split()
    if number:
        yield TokenStory(file, line, number, " ".join(words))


SOURCE = Source(
    name="rcv1",
    title="RCV1-V2 newswire stories: 103 topics, multi-label",
    origin="RCV1-V2 (Lewis et al. 2004)",
    licence="for research; cite Lewis et al. 2004",
    version="1",
    options=Options,
    read=read,
    state=RELEASE.state,
)
