"""Formats text, counts and tables, also as Markdown and LaTeX.

This module imports no other module of mlcl, so that every layer may use it.
"""

import re
from collections.abc import Sequence

LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
        "[": "{[}",  # after \\ it would begin an optional argument
        "±": r"$\pm$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "λ": r"$\lambda$",  # noqa: RUF001
        "τ": r"$\tau$", "·": r"$\cdot$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$",  # noqa: RUF001
    }
)  # fmt: skip
MARKDOWN = re.compile(r"[\\|*`\[]|<(?=[A-Za-z/!?])")
"""Matches characters that have a meaning in Markdown; `<` only where it could begin an HTML tag."""


def one_line(text: str) -> str:
    """Returns the text on one line: a line break would end a table's row, and an empty line its caption."""
    return " ".join(text.split())


def format_count(count: int, noun: str) -> str:
    """Returns a count with its noun: `1 row`, `3,000 rows`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Returns seconds as text: `4m10s`, and `3h05m` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


def megabytes(count: int) -> str:
    """Returns a number of bytes as text: `0.3 MB`, and `137 MB` from 10 MB on."""
    size = count / 1e6
    return f"{size:,.0f} MB" if size >= 10 else f"{size:.1f} MB"


def markdown(text: str) -> str:
    """Returns the text escaped for Markdown, on one line."""
    return MARKDOWN.sub(r"\\\g<0>", one_line(text))


def latex(text: str) -> str:
    """Returns the text escaped for LaTeX, on one line."""
    return one_line(text).translate(LATEX)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Returns a Markdown table of cells in Markdown. Columns with an index in `left` are aligned left."""
    rules = ["---" if place in left else "---:" for place in range(len(heads))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows))


def latex_table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)
) -> str:
    """Returns a LaTeX table for the package booktabs. Caption and cells must be LaTeX already."""
    columns = "".join("l" if place in left else "r" for place in range(len(heads)))
    first, *rest = (" & ".join(cells) + r" \\" for cells in (heads, *rows))
    top = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{columns}}}"]
    bottom = [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join([*top, r"\toprule", first, r"\midrule", *rest, *bottom])
