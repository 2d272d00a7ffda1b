"""Writes the files of a report: an HTML file with embedded pictures, Markdown, and plots as SVG and CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mlcl.errors import UserError
from mlcl.files import scratch_beside
from mlcl.markup import markdown, markdown_table
from mlcl.report.document import (
    DIGITS,
    Block,
    Code,
    Details,
    Document,
    Picture,
    ReportCell,
    ReportTable,
    text_row,
)
from mlcl.report.plots.charts import to_svg

PAGE, MARKDOWN, PICTURES = "report.html", "report.md", "plots"
GENERATOR = "mlcl report"
"""The content of the page's meta tag `generator`, by which an earlier report is recognised."""
FOLDER = Path(__file__).parent
MOST_ROWS = 250
"""The largest number of rows of a plot's table in the page; its CSV file has all of them."""


def report_folder(folder: Path) -> Path:
    """Returns the absolute path of a report's folder.

    Raises UserError unless the folder is new, empty, or that of an earlier report, and can be written.
    """
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise UserError("is no folder", file=folder, key="--to")
    paths = [*folder.glob("*"), *folder.glob(f"{PICTURES}/*")]
    own_names = _earlier_files(folder / PAGE)
    other_names = sorted(name for path in paths if (name := str(path.relative_to(folder))) not in own_names)
    if other_names:
        problem = "holds files that the report would take the place of"
        allowed = "a new folder, an empty one, or that of an earlier report"
        raise UserError(problem, file=folder, key="--to", found=other_names[:5], allowed=allowed)
    parent = next(parent for parent in folder.parents if parent.exists())
    try:
        TemporaryDirectory(prefix=".mlcl-", dir=parent).cleanup()
    except OSError as error:
        raise UserError("cannot be written", file=folder, key="--to", found=error) from None
    return folder


def _earlier_files(page: Path) -> set[str]:
    """Returns the file names of the report whose HTML page is `page`; empty if `page` is not of a report."""
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return set()
    if f'<meta name="generator" content="{GENERATOR}">' not in text:
        return set()
    plots = re.findall(r'<figure id="([^"]+)">', text)
    files = {f"{PICTURES}/{name}.{form}" for name in plots for form in ("svg", "csv")}
    return {PAGE, MARKDOWN, PICTURES} | files


def write_report(document: Document, folder: Path, link: Callable[[str], str], creation_time: str) -> None:
    """Replaces `folder`, which `report_folder` has checked, by the report; restores it if that fails.

    `link` gives the URL of a run, the page shows `creation_time`.
    """
    with scratch_beside(folder) as scratch:
        new, old = scratch / "new", scratch / "old"
        _write(document, new, link, creation_time)
        with suppress(FileNotFoundError):
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists() and not folder.exists():
                old.rename(folder)
            raise


def _write(document: Document, folder: Path, link: Callable[[str], str], made: str) -> None:
    pictures = folder / PICTURES
    pictures.mkdir(parents=True)
    images = {plot.name: to_svg(plot.figure()) for plot in document.plots}
    (folder / PAGE).write_text(as_html(document, images, link, made), encoding="utf-8")
    (folder / MARKDOWN).write_text(as_markdown(document, link), encoding="utf-8")
    for plot in document.plots:
        (pictures / f"{plot.name}.svg").write_text(images[plot.name], encoding="utf-8")
        plot.table.to_csv(pictures / f"{plot.name}.csv", index=False)


def as_html(
    document: Document, images: Mapping[str, str], link: Callable[[str], str], creation_time: str
) -> str:
    """Returns the document as an HTML page.

    `images` has its plots as SVG, keyed by name; `link` gives the URL of a run; `creation_time` is shown.
    All text is escaped, because names come from job files and data sets.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((FOLDER / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        document=document,
        link=link,
        made=creation_time,
        version=metadata.version("mlcl"),
        generator=GENERATOR,
        most_rows=MOST_ROWS,
        pictures=PICTURES,
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup((FOLDER / "page.js").read_text(encoding="utf-8")),
        kind=lambda block: type(block).__name__,
        images={name: _to_data_url(image) for name, image in images.items()},
        frame_rows=lambda table: [text_row(*row) for row in frame_rows(table)],
    )


def _to_data_url(image: str) -> Markup:
    """Returns the SVG as a data URL for a quoted attribute; escaped angle brackets would take more room."""
    for character, escape in (("%", "%25"), ("#", "%23"), ('"', "%22"), ("\n", " "), ("&", "&amp;")):
        image = image.replace(character, escape)
    return Markup(f"data:image/svg+xml,{image}")


def as_markdown(document: Document, link: Callable[[str], str]) -> str:
    """Returns the document as Markdown; `link` gives the URL of a run."""
    parts = [f"# {markdown(document.title)}", markdown(document.about)]
    for section in document.sections:
        parts += [f"## {markdown(section.title)}", *_render_blocks(section.blocks, link, 3)]
    return "\n\n".join(part for part in parts if part) + "\n"


def blocks_as_markdown(blocks: Sequence[Block], link: Callable[[str], str]) -> list[str]:
    """Returns the blocks as Markdown paragraphs, without pictures; `link` gives the URL of a run."""
    return _render_blocks([block for block in blocks if not isinstance(block, Picture)], link, 3)


def _render_blocks(blocks: Sequence[Block], link: Callable[[str], str], level: int) -> list[str]:
    return [part for block in blocks for part in _render_block(block, link, level)]


def _render_block(block: Block, link: Callable[[str], str], level: int) -> list[str]:
    match block:
        case str(text):
            return [markdown(text)]
        case Code(text):
            # The fence is longer than any in the text, as an equally long one would end the block.
            fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`+", text)), 0)
            return [f"{fence}yaml\n{text.rstrip()}\n{fence}"]
        case ReportTable(heads, rows, left):
            if not rows:
                return []
            cells = [[_render_cell(cell, link) for cell in row] for row in rows]
            return [markdown_table([markdown(head) for head in heads], cells, left)]
        case Picture(plot):
            title, file = markdown(plot.title), f"{PICTURES}/{plot.name}"
            figures = f"Its figures: [{plot.name}.csv]({file}.csv)"
            return [f"{'#' * level} {title}", f"![{title}]({file}.svg)", markdown(plot.caption), figures]
        case Details(title, inner_blocks):
            return [f"{'#' * level} {markdown(title)}", *_render_blocks(inner_blocks, link, level + 1)]


def _render_cell(cell: ReportCell, link: Callable[[str], str]) -> str:
    text = f"**{markdown(cell.text)}**" if cell.best else markdown(cell.text)
    return f"[{text}]({link(cell.run_id)})" if cell.run_id and text else text


def frame_rows(table: pd.DataFrame) -> list[list[str]]:
    """Returns the rows of a plot's table as text; floats have `DIGITS` + 1 significant digits."""
    return [
        [f"{value:.{DIGITS + 1}g}" if isinstance(value, float) else str(value) for value in row]
        for row in table.astype(object).where(table.notna(), "").itertuples(index=False)
    ]
