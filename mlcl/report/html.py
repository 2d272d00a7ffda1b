"""A report as one HTML file, which contains its pictures, styles and scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mlcl.report.document import Document, text_row
from mlcl.report.markdown import frame_rows

FOLDER = Path(__file__).parent
GENERATOR = "mlcl report"
"""The value of the meta tag by which an earlier report is recognised."""


def as_html(document: Document, images: Mapping[str, str], link: Callable[[str], str], made: str) -> str:
    """The document as HTML. `images`: its plots as SVG by name; `link`: the URL of a run; `made`: the time.

    All text is escaped, because names come from job files and data sets.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((FOLDER / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        document=document,
        link=link,
        made=made,
        version=metadata.version("mlcl"),
        generator=GENERATOR,
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup((FOLDER / "page.js").read_text(encoding="utf-8")),
        kind=lambda block: type(block).__name__,
        images={name: _address(image) for name, image in images.items()},
        frame_rows=lambda table: [text_row(*row) for row in frame_rows(table)],
    )


def _address(image: str) -> str:
    return "data:image/svg+xml," + image.replace("%", "%25").replace("#", "%23").replace("\n", " ")
