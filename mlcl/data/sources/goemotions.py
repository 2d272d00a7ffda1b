"""GoEmotions: Reddit comments with 27 emotions or neutral (Demszky et al. 2020), Apache 2.0 and CC BY 4.0.

The distribution of Google Research, its folder `data`: `train.tsv`, `dev.tsv` and `test.tsv`, where a line is
a comment, the numbers of its emotions and an id, between tabs, and a quote is a plain character;
`emotions.txt` with the names; `ekman_mapping.json` and `sentiment_dict.json`, which group the emotions and
leave neutral out: it is a group of its own here.

The published split is not changed, although 109 test comments have the words of a training comment.

Three multi-label spaces: `emotion` (28), `ekman` (7) and `sentiment` (4), coarser and coarser, and the
hierarchy `path` through them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from mlcl.data.hierarchies import hierarchy_of, pairs_of_paths
from mlcl.data.source import NewDataset, Source, Workspace, count, indices, space_of
from mlcl.data.sources.common.distribution import Distribution, DistributionOptions, Release
from mlcl.data.writer import in_batches

PARTS = {"train.tsv": "train", "dev.tsv": "validation", "test.tsv": "test"}
GROUPS = {"ekman": "ekman_mapping.json", "sentiment": "sentiment_dict.json"}
"""Maps a label space to the file that says which emotions each of its groups has."""
RELEASE = Release("GoEmotions (Google Research, the folder data)", [*PARTS, "emotions.txt", *GROUPS.values()])
NEUTRAL = "neutral"
COUNTS = {"train": 43_410, "validation": 5_426, "test": 5_427, "classes": 28, "labels a row": 1.18}


class Comment(NamedTuple):
    """A comment with its split and its emotions."""

    id: str
    split: str
    text: str
    emotions: list[str]


def read(options: DistributionOptions, _split_seed: int, work: Workspace) -> NewDataset:
    """Returns the data set in its published split."""
    files = work.enter_context(RELEASE.open(options.path))
    emotions = files.class_names("emotions.txt")
    groups = {space: _read_groups(files, name, emotions) for space, name in GROUPS.items()}
    comments = list(chain.from_iterable(_comments(files, name, emotions) for name in PARTS))
    ids, splits, names = ([getattr(c, f) for c in comments] for f in ("id", "split", "emotions"))
    options.compare(COUNTS, count(splits, names))
    spaces = {"emotion": space_of(emotions)}
    columns = {"id": ids, "split": splits, "emotion": indices(names, spaces["emotion"])}
    for space, group_of in groups.items():
        spaces[space] = space_of(dict.fromkeys(group_of.values()))
        columns[space] = indices([[group_of[name] for name in row] for row in names], spaces[space])
    paths = [(groups["sentiment"][name], groups["ekman"][name], name) for name in emotions]
    levels = ("sentiment", "ekman", "emotion")
    spaces["path"] = hierarchy_of(pairs_of_paths(paths), levels, spaces, options.path)
    batches = in_batches(columns, "text", (comment.text for comment in comments))
    return NewDataset("text", spaces, batches, allow_untrained=not options.check_counts)


def _read_groups(files: Distribution, name: str, emotions: Sequence[str]) -> dict[str, str]:
    """Maps each emotion to its group, in the order of the file; neutral is a group of its own, the last."""
    groups = files.json(name)
    try:
        pairs = [(emotion, group) for group, members in groups.items() for emotion in members]
        group_of = dict(pairs)
    except (AttributeError, TypeError) as error:
        raise files.error(name, "not an object of lists of emotions", error) from None
    if len(group_of) < len(pairs):
        raise files.error(name, "an emotion comes twice", [emotion for emotion, _ in pairs])
    group_of.setdefault(NEUTRAL, NEUTRAL)
    if missing_emotions := [emotion for emotion in emotions if emotion not in group_of]:
        raise files.error(name, "emotions have no group", missing_emotions)
    return group_of


def _comments(files: Distribution, name: str, emotions: Sequence[str]) -> Iterator[Comment]:
    by_number = {str(number): emotion for number, emotion in enumerate(emotions)}
    for number, line in files.lines(name):
        try:
            text, numbers, comment_id = line.split("\t")
            labels = [by_number[index] for index in numbers.split(",")]
        except (ValueError, KeyError):
            problem = f"line {number} is no text, numbers of emotions and id"
            raise files.error(name, problem, line, f"0 to {len(emotions) - 1}") from None
        yield Comment(comment_id, PARTS[name], text, labels)


SOURCE = Source(
    name="goemotions",
    title="GoEmotions comments: 28 emotions > 7 Ekman > 4 sentiments, multi-label",
    origin="GoEmotions (Demszky et al. 2020, Google Research)",
    licence="Apache 2.0 and CC BY 4.0",
    version="2",
    options=DistributionOptions,
    read=read,
    state=RELEASE.state,
)
