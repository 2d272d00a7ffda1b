"""A report's files: the page, the Markdown, each plot with its figures."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from mlcl.report.document import Document
from mlcl.report.page import as_html, svg
from mlcl.report.plain import PICTURES, as_markdown

PAGE, MARKDOWN = "report.html", "report.md"


def write_report(document: Document, folder: Path, link: Callable[[str], str], made: str) -> None:
    """Writes the report into `folder`, in the place of an earlier one: whole, or not at all."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    pictures = partial / PICTURES
    pictures.mkdir(parents=True)
    images = {plot.name: svg(plot) for plot in document.plots}
    (partial / PAGE).write_text(as_html(document, images, link, made), encoding="utf-8")
    (partial / MARKDOWN).write_text(as_markdown(document, link), encoding="utf-8")
    for plot in document.plots:
        (pictures / f"{plot.name}.svg").write_text(images[plot.name], encoding="utf-8")
        plot.table.to_csv(pictures / f"{plot.name}.csv", index=False)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
