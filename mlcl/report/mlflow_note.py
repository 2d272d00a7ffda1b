"""The description of a sweep's or table's run in MLflow: its result, and a link to the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlflow.entities import Run

from mlcl.report.document import Document
from mlcl.report.markdown import blocks_as_markdown
from mlcl.report.report_files import PAGE
from mlcl.report.runs import Runs, kind
from mlcl.tracking.names import Tag
from mlcl.tracking.shared_view import NOTE_BEGIN, view_note

END = "Written by `mlcl report`."
"""Ends every note that is written here; any other note is a user's and stays."""
MOST = 4500
"""Most characters of a note: MLflow keeps no longer tags."""


def write_note(runs: Runs, group: Run, document: Document, link: Callable[[str], str]) -> None:
    """Sets the description of the run that has the report, unless a user wrote one."""
    before = str(group.data.tags.get(Tag.NOTE, ""))
    if before and not before.endswith(END) and not before.startswith(NOTE_BEGIN):
        return
    page = f"[The report]({link(f'{group.info.run_id}/artifacts/report/{PAGE}')})"
    if kind(group) == "sweep":
        page = f"{page}. {view_note(str(group.info.experiment_id), group.data.tags[Tag.ID])}"
    said = blocks_as_markdown(document.sections[0].blocks, link)
    # A paragraph that ends with a colon is dropped with the table behind it.
    while said and (len(_note(page, said)) > MOST or said[-1].endswith(":")):
        said.pop()
    runs.tracker.client.set_tag(group.info.run_id, Tag.NOTE, _note(page, said))


def _note(page: str, said: Sequence[str]) -> str:
    return "\n\n".join([page, *said, END])
