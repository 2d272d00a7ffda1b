"""A report's files: the page, the Markdown, each plot with its figures."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from mlcl.errors import UserError
from mlcl.report.document import Document
from mlcl.report.page import as_html
from mlcl.report.plain import PICTURES, as_markdown
from mlcl.report.plots.drawing import to_svg

PAGE, MARKDOWN = "report.html", "report.md"


def report_folder(folder: Path) -> Path:
    """Where a report may go, with links followed: a new folder, an empty one, that of an earlier report.

    What is there, is replaced. Raises UserError where that would be anything else, and where nothing can be
    written.
    """
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise UserError("is no folder", file=folder, key="--to")
    there = [*folder.glob("*"), *folder.glob(f"{PICTURES}/*")]
    others = sorted(name for path in there if not _ours(name := str(path.relative_to(folder))))
    if others:
        raise UserError(
            "holds files that the report would take the place of",
            file=folder,
            key="--to",
            found=others[:5],
            allowed="a new folder, an empty one, or that of an earlier report",
        )
    above = next(place for place in folder.parents if place.exists())
    try:
        TemporaryDirectory(prefix=".mlcl-", dir=above).cleanup()
    except OSError as error:
        raise UserError("cannot be written", file=folder, key="--to", found=error) from None
    return folder


def _ours(name: str) -> bool:
    return (
        name in (PAGE, MARKDOWN, PICTURES) or re.fullmatch(rf"{PICTURES}/[^/]+\.(svg|csv)", name) is not None
    )


def write_report(document: Document, folder: Path, link: Callable[[str], str], made: str) -> None:
    """Writes the report into `folder`, in the place of an earlier one: whole, or not at all.

    `folder` is what `report_folder` found.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        _write(document, partial, link, made)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(document: Document, folder: Path, link: Callable[[str], str], made: str) -> None:
    pictures = folder / PICTURES
    pictures.mkdir(parents=True)
    images = {plot.name: to_svg(plot.figure(), outlines=True) for plot in document.plots}
    (folder / PAGE).write_text(as_html(document, images, link, made), encoding="utf-8")
    (folder / MARKDOWN).write_text(as_markdown(document, link), encoding="utf-8")
    for plot in document.plots:
        (pictures / f"{plot.name}.svg").write_text(images[plot.name], encoding="utf-8")
        plot.table.to_csv(pictures / f"{plot.name}.csv", index=False)
