"""Where a report's figures come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mlflow.entities import Run

from mlcl.report.document import Table, words
from mlcl.tracking.names import VERSION_TAG, Tag

NAMES = {
    Tag.ID: "id",
    Tag.JOB: "cluster job",
    Tag.COMMAND: "command",
    Tag.COMMIT: "commit",
    Tag.DIRTY: "with uncommitted changes",
    Tag.JOB_HASH: "job hash",
    Tag.DATA: "data",
    Tag.FINGERPRINT: "data fingerprint",
    Tag.PYTHON: "Python",
    Tag.MACHINE: "machine",
}
"""Tags that are shown, and how they are called."""
INSIDE = (
    Tag.COMMIT,
    Tag.DIRTY,
    Tag.FINGERPRINT,
    Tag.PYTHON,
    Tag.MACHINE,
)
"""Tags in which the trainings may differ from what holds them: a later command may run other code.

So they may in the versions of libraries."""


def provenance_table(run: Run, inside: Iterable[Run], store: str) -> Table:
    """The tags of a sweep's or table's run, and all that its trainings say."""
    tags = dict(run.data.tags)
    everywhere = [tags, *(each.data.tags for each in inside)]
    rows = [words("tracking store", store), words("MLflow run", run.info.run_id)]
    for tag, name in NAMES.items():
        values = _all(tag, everywhere if tag in INSIDE else [tags])
        if values:
            rows.append(words(name, ", ".join(values)))
    versions = sorted({tag for each in everywhere for tag in each if tag.startswith(VERSION_TAG)})
    rows += [words(tag.removeprefix(VERSION_TAG), ", ".join(_all(tag, everywhere))) for tag in versions]
    return Table(("what", "value"), tuple(rows), left=(0, 1))


def _all(tag: str, tags: Iterable[Mapping[str, str]]) -> list[str]:
    return sorted({each[tag] for each in tags if each.get(tag)})
