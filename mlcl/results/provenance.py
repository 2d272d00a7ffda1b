"""Collects the provenance of results (code, libraries, machine, data) from the tags in runs' logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlcl.tracking.log import LOG, first_entry, log_folder
from mlcl.tracking.names import VERSION_TAG, Tag

Tags = Mapping[str, str]
TITLES = {
    Tag.ID: "id",
    Tag.JOB: "cluster job",
    Tag.COMMAND: "command",
    Tag.COMMIT: "commit",
    Tag.DIRTY: "with uncommitted changes",
    Tag.CODE: "code changed on the way",
    Tag.JOB_HASH: "job hash",
    Tag.DATA: "data",
    Tag.FINGERPRINT: "data fingerprint",
    Tag.PYTHON: "Python",
    Tag.LIBRARIES: "libraries",
    Tag.MACHINE: "machine",
}
"""The tags that are shown to the user, with the titles under which they are shown."""
OF_TRAININGS = (Tag.COMMIT, Tag.DIRTY, Tag.FINGERPRINT, Tag.PYTHON, Tag.LIBRARIES, Tag.MACHINE)
"""Tags that are also read from the trainings: a later command may have run other code."""


def log_start(home: Path, log: str) -> dict[str, Any]:
    """Returns the first entry of a log (time, parameters, tags), or an empty dict where the log is gone."""
    return first_entry(log_folder(home, log) / LOG)


def provenance_of(own_tags: Tags, trainings: Iterable[Tags]) -> dict[str, tuple[str, ...]]:
    """Returns the provenance of a run, sweep or table with the tags `own_tags`, and of its trainings.

    The keys are the titles of `TITLES` and names of packages; a value has all different values of a tag.
    """
    all_tags = [own_tags, *trainings]
    provenance = {
        title: _tag_values(tag, all_tags if tag in OF_TRAININGS else [own_tags])
        for tag, title in TITLES.items()
    }
    versions = sorted({tag for tags in all_tags for tag in tags if tag.startswith(VERSION_TAG)})
    provenance |= {tag.removeprefix(VERSION_TAG): _tag_values(tag, all_tags) for tag in versions}
    return {title: values for title, values in provenance.items() if values}


def _tag_values(tag: str, all_tags: Iterable[Tags]) -> tuple[str, ...]:
    return tuple(sorted({tags[tag] for tags in all_tags if tags.get(tag)}))


def data_notes(tags_of_runs: Iterable[Tags]) -> dict[str, tuple[str, ...]]:
    """Returns the notes on the runs' data sets without duplicates, keyed by the data set's name."""
    notes_by_data: dict[str, dict[str, None]] = {}
    for tags in tags_of_runs:
        notes = json.loads(tags.get(Tag.DATA_NOTES, "[]"))
        if notes:
            notes_by_data.setdefault(tags.get(Tag.DATA, "data"), {}).update(dict.fromkeys(notes))
    return {name: tuple(notes) for name, notes in notes_by_data.items()}


def lower_is_better(tags_of_runs: Iterable[Tags]) -> tuple[str, ...]:
    """Returns the patterns of metrics that are better where lower, as recorded in the runs' tags."""
    texts = {tags[Tag.LOWER_IS_BETTER] for tags in tags_of_runs if Tag.LOWER_IS_BETTER in tags}
    return tuple(sorted({pattern for text in texts for pattern in json.loads(text)}))
