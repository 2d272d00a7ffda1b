"""The provenance of a report's figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from mlflow.entities import Run

from mlcl.report.document import Section, Table, Text, text_row
from mlcl.tracking.names import VERSION_TAG, Tag

NAMES = {
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
"""The tags that are shown, and their titles."""
INSIDE = (
    Tag.COMMIT,
    Tag.DIRTY,
    Tag.FINGERPRINT,
    Tag.PYTHON,
    Tag.LIBRARIES,
    Tag.MACHINE,
)
"""Tags that are also read from the trainings: a later command may have run other code."""


def provenance_table(run: Run, inside: Iterable[Run], store: str) -> Table:
    """The tags of a sweep's or table's run, and those of its trainings."""
    tags = dict(run.data.tags)
    everywhere = [tags, *(each.data.tags for each in inside)]
    rows = [text_row("tracking store", store), text_row("MLflow run", run.info.run_id)]
    for tag, name in NAMES.items():
        values = _all(tag, everywhere if tag in INSIDE else [tags])
        if values:
            rows.append(text_row(name, ", ".join(values)))
    versions = sorted({tag for each in everywhere for tag in each if tag.startswith(VERSION_TAG)})
    rows += [text_row(tag.removeprefix(VERSION_TAG), ", ".join(_all(tag, everywhere))) for tag in versions]
    return Table(("what", "value"), tuple(rows), left=(0, 1))


def data_sections(runs: Iterable[Run]) -> list[Section]:
    """The section with the notes of the runs' data sets; empty without a note."""
    found = {
        f"{run.data.tags.get(Tag.DATA, 'data')}: {note}": None
        for run in runs
        for note in json.loads(run.data.tags.get(Tag.DATA_NOTES, "[]"))
    }
    return [Section("Data", tuple(map(Text, found)))] if found else []


def _all(tag: str, tags: Iterable[Mapping[str, str]]) -> list[str]:
    return sorted({each[tag] for each in tags if each.get(tag)})
