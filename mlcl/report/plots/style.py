"""The style of all plots: series differ in colour, marker and dash, for print and colour-blind readers.

The colours are the palette of Okabe and Ito without its yellow, which is too pale for lines on white.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import matplotlib

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[tuple[int, ...], ...] = ((), (5, 2), (1, 2), (6, 2, 1, 2), (9, 3), (3, 1, 3, 3))
"""The dash patterns: lengths of strokes and gaps in line widths, () for a solid line."""
BEST = "#D55E00"
"""The colour of the best setting."""
MEANINGS = {"complete": "#0072B2", "pruned": "#888888", "best": BEST, "baseline": "#009E73"}
"""The colours of series with these names, in every plot."""
FONT_SIZE = 11
LINE_WIDTH = 1.8
BAND = 0.2
"""The opacity of the band around a curve."""
CLOUD = 150
"""The smallest number of points in a series for which they are drawn smaller."""
MOST_SHAPES = 2000
"""The largest number of marks that are drawn as shapes; more become one image, which takes less room."""
WIDTH, HEIGHT = 5.6, 3.9
"""The size of a plot in inches: narrow, so that its text can be read on a phone."""
_RC: Any = {
    "figure.figsize": (WIDTH, HEIGHT),
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],  # equally wide; every system has one of the two
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "mlcl",
}


def series_style(position: int, name: str = "") -> dict[str, Any]:
    """Returns colour, marker and dash of the series at `position`, as arguments of matplotlib's `plot`.

    A `name` in `MEANINGS` determines the colour. The lists differ in length, so that styles repeat late.
    """
    dash = DASHES[position % len(DASHES)]
    return {
        "color": MEANINGS.get(name, COLOURS[position % len(COLOURS)]),
        "marker": MARKERS[position % len(MARKERS)],
        "linestyle": (0, dash) if dash else "solid",
    }


def matplotlib_style() -> AbstractContextManager[None]:
    """Returns a context in which figures are made and saved in the style of reports."""
    return matplotlib.rc_context(_RC)


def as_text(text: str) -> str:
    """Returns the text escaped for matplotlib, so that a dollar sign does not start a formula."""
    return text.replace("$", r"\$")
