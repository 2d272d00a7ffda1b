"""Reuters-21578: newswire stories of 1987 with 90 topics in the ModApte split (Lewis 1997), for research.

The distribution of D. D. Lewis: `reut2-000.sgm` to `reut2-021.sgm`, 21,578 stories. The files are SGML that
no XML reader takes: Latin-1, references to control characters (`&#3;`), which are dropped, and free text
between tags. A text is the title, a line break and the body, or only one of them. A story of TYPE BRIEF has
placeholder words instead of a body, outside the tags; a story of TYPE UNPROC has no tags and is read whole.

ModApte trains on the stories with LEWISSPLIT TRAIN and TOPICS YES and tests on TEST and YES. Only the 90
topics that occur in both are kept, and only the stories with such a topic: 7,770 and 3,019. Validation is
held out of train by a seeded hash of the words, so that a story and its repetition share a split.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from pydantic import Field

from mlcl.data.source import NewDataset, Source, Workspace, count, indices, space_of_rows
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.split_assignment import hold_out_rows, words_of
from mlcl.data.writer import in_batches

FILES = [f"reut2-{number:03}.sgm" for number in range(22)]
RELEASE = Release("Reuters-21578 (D. D. Lewis, distribution 1.0)", FILES)
SPLITS = {"TRAIN": "train", "TEST": "test"}
NEEDED = {"TOPICS", "LEWISSPLIT", "NEWID"}
COUNTS = {"train": 7_770, "test": 3_019, "classes": 90, "labels a row": 1.23}

ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
CONTROL = dict.fromkeys({*range(32), 127} - {ord("\t"), ord("\n")})


class Options(DistributionOptions):
    """The options of the source `reuters21578`: its files, and the share held out for validation."""

    validation: float = Field(0.1, ge=0, lt=1, description="share of the training stories")


class Story(NamedTuple):
    """A story of the ModApte split."""

    id: str
    split: str
    topics: list[str]
    text: str


def read(options: Options, split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set with the multi-label space `topics`."""
    files = work.enter_context(RELEASE.open(options.path))
    stories = _keep_shared_topics(list(chain.from_iterable(_modapte_stories(files, name) for name in FILES)))
    ids, splits, names = ([getattr(s, f) for s in stories] for f in ("id", "split", "topics"))
    options.compare(COUNTS, count(splits, names))
    space = space_of_rows(names, options.path)
    labels = indices(names, space)
    # Some stories were sent twice: equal words give equal keys.
    keys = [words_of(story.text) for story in stories]
    hold_out_rows(splits, [labels], keys, split_seed, options.validation)
    columns = {"id": ids, "split": splits, "topics": labels}
    return NewDataset(
        "text", {"topics": space}, in_batches(columns, "text", (story.text for story in stories))
    )


def _keep_shared_topics(stories: list[Story]) -> list[Story]:
    """Keeps the topics that occur in train and in test, and the stories that have such a topic."""
    train, test = (
        {topic for story in stories if story.split == split for topic in story.topics}
        for split in SPLITS.values()
    )
    reduced = [s._replace(topics=[topic for topic in s.topics if topic in train & test]) for s in stories]
    return [story for story in reduced if story.topics]


def _modapte_stories(files: Distribution, name: str) -> Iterator[Story]:
    content = files.read(name).decode("latin-1")
    for number, part in enumerate(content.split("<REUTERS")[1:], 1):
        story, end, _ = part.partition("</REUTERS>")
        if not end:
            raise files.error(name, f"story {number} of the file has no end; is it whole?")
        attributes = dict(ATTRIBUTE.findall(story.partition(">")[0]))
        if not attributes.keys() >= NEEDED:
            problem = f"story {number} of the file lacks an attribute"
            raise files.error(name, problem, list(attributes), sorted(NEEDED))
        if attributes.get("TOPICS") == "YES" and attributes.get("LEWISSPLIT") in SPLITS:
            topics = list(_tag_contents("".join(_tag_contents(story, "TOPICS")), "D"))
            yield Story(attributes["NEWID"], SPLITS[attributes["LEWISSPLIT"]], topics, _story_text(story))


def _story_text(story: str) -> str:
    section = "".join(_tag_contents(story, "TEXT"))
    parts = [*_tag_contents(section, "TITLE"), *_tag_contents(section, "BODY")] or [section]
    # A character reference becomes its character, but one to a control character becomes nothing.
    clean_parts = [html.unescape(part).translate(CONTROL).strip() for part in parts]
    return "\n".join(part for part in clean_parts if part)


def _tag_contents(text: str, tag: str) -> Iterator[str]:
    """Yields the text between each `<tag>`, with or without attributes, and `</tag>`, in linear time."""
    for part in text.split(f"<{tag}")[1:]:
        attributes, _, rest = part.partition(">")
        content, end, _ = rest.partition(f"</{tag}>")
        if end and not attributes[:1].isalnum():
            yield content


SOURCE = Source(
    name="reuters21578",
    title="Reuters-21578 ModApte R90: 90 topics, multi-label",
    origin="Reuters-21578, distribution 1.0 (D. D. Lewis)",
    licence="for research; cite Reuters and D. D. Lewis",
    version="2",
    options=Options,
    read=read,
    state=RELEASE.state,
)
