"""A report as one HTML file, which contains its pictures, styles and scripts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mlcl.report.document import Document, text_row
from mlcl.report.markdown import frame_rows
from mlcl.report.plots.plot import Plot

FOLDER = Path(__file__).parent
GENERATOR = "mlcl report"
"""The value of the meta tag by which an earlier report is recognised."""


def as_html(document: Document, images: Mapping[str, str], link: Callable[[str], str], made: str) -> str:
    """The document as HTML. `images`: its plots as SVG by name; `link`: the URL of a run; `made`: the time.

    All text is escaped, because names come from job files and data sets. Each plot is in the file twice: as
    SVG, and as JSON that plotly draws when a reader opens it.
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
        plotly=_plotly() if document.plots else "",
        kind=lambda block: type(block).__name__,
        images={name: _address(image) for name, image in images.items()},
        explored=_explored,
        frame_rows=lambda table: [text_row(*row) for row in frame_rows(table)],
    )


def _address(image: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(image.encode()).decode()


def _explored(plot: Plot) -> Markup:
    """The plot as JSON for plotly, escaped so that no text in it ends the script element."""
    text = str(plot.interactive().to_json())
    return Markup(text.replace("<", "\\u003c"))


@cache
def _plotly() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs().replace("</script", "<\\/script"))
