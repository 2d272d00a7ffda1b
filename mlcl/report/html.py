"""A report as one HTML file that needs nothing else: pictures, styles and scripts are in it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import mlcl
from mlcl.report.document import Document, words
from mlcl.report.markdown import frame_rows
from mlcl.report.plots import Plot

FOLDER = Path(__file__).parent
GENERATOR = "mlcl report"
"""The page's own mark, by which it is known again."""


def as_html(document: Document, images: Mapping[str, str], link: Callable[[str], str], made: str) -> str:
    """The whole document; `images` are its plots as SVG by name, `link` gives a run's page, `made` says when.

    All text is escaped: names come from job files and data sets. Pictures are drawn twice: once for reading
    and print, and by plotly when a reader asks to explore one, from a copy of it in the file.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((FOLDER / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        document=document,
        link=link,
        made=made,
        version=mlcl.__version__,
        generator=GENERATOR,
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup((FOLDER / "page.js").read_text(encoding="utf-8")),
        plotly=_plotly() if document.plots else "",
        kind=lambda block: type(block).__name__,
        images={name: _address(image) for name, image in images.items()},
        explored=_explored,
        frame_rows=lambda table: [words(*row) for row in frame_rows(table)],
    )


def _address(image: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(image.encode()).decode()


def _explored(plot: Plot) -> Markup:
    """The picture for plotly, as JSON that no text in it can end."""
    text = str(plot.interactive().to_json())
    return Markup(text.replace("<", "\\u003c"))


@cache
def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs().replace("</script", "<\\/script"))
