"""How pictures look: series differ in colour, marker and dash, so that print and colour blindness lose none.

The colours are those of Okabe and Ito without their yellow, which is too pale for lines on white.
"""

from __future__ import annotations

import html
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
MARKERS = (
    ("o", "circle"),
    ("s", "square"),
    ("^", "triangle-up"),
    ("D", "diamond"),
    ("v", "triangle-down"),
    ("P", "cross"),
    ("X", "x"),
    ("*", "star"),
)
"""As matplotlib and as plotly call them."""
DASHES: tuple[tuple[int, ...], ...] = ((), (5, 2), (1, 2), (6, 2, 1, 2), (9, 3), (3, 1, 3, 3))
"""Lengths of strokes and gaps in widths of the line."""
HATCHES = (("", ""), ("//", "/"), ("..", "."), ("xx", "x"), ("--", "-"), ("||", "|"), ("++", "+"))
"""As matplotlib and as plotly call them."""
BEST = "#D55E00"
"""Of the best setting's mark."""
FONT_SIZE = 11
LINE_WIDTH = 1.8
BAND = 0.2
"""Opacity of a band."""
FILL = 0.35
"""Opacity of a bar under its hatch."""
WIDTH, HEIGHT = 5.6, 3.9
"""Of a picture in inches: a narrow one, whose letters a phone can still show."""
_RC: Any = {
    "figure.figsize": (WIDTH, HEIGHT),
    "figure.constrained_layout.use": True,
    "font.family": "sans-serif",
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "mlcl",
}


@dataclass(frozen=True)
class Look:
    """How one series is drawn; `marker` and `hatch` as (matplotlib, plotly)."""

    colour: str
    marker: tuple[str, str]
    dash: tuple[int, ...]
    hatch: tuple[str, str]

    @property
    def dashes(self) -> str | tuple[int, tuple[int, ...]]:
        """The dash as matplotlib writes it."""
        return (0, self.dash) if self.dash else "solid"

    @property
    def strokes(self) -> str:
        """The dash as plotly writes it."""
        return ",".join(f"{2 * length}px" for length in self.dash) or "solid"

    def shade(self, opacity: float) -> str:
        """The colour as CSS, so opaque."""
        red, green, blue = (int(self.colour[start : start + 2], 16) for start in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"


def look(position: int) -> Look:
    """How the series at a position is drawn: the lists' lengths differ, so that looks repeat late."""
    return Look(
        COLOURS[position % len(COLOURS)],
        MARKERS[position % len(MARKERS)],
        DASHES[position % len(DASHES)],
        HATCHES[position % len(HATCHES)],
    )


def scale(mode: str) -> str:
    """The colours of scores, the better the darker; both libraries know them by this name."""
    return "cividis_r" if mode == "max" else "cividis"


def styled() -> AbstractContextManager[None]:
    """Where matplotlib's figures are made and saved."""
    return matplotlib.rc_context(_RC)


def as_text(text: str) -> str:
    """A text that matplotlib draws letter by letter, with no formula in it."""
    return text.replace("$", r"\$")


def as_html(text: str) -> str:
    """A text that plotly draws letter by letter, with no markup or formula in it."""
    return html.escape(text, quote=False).replace("$", "&#36;")
