"""Tables of text as Markdown and LaTeX. Imports nothing, so that every layer may use it."""

from collections.abc import Sequence

LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
        "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
        "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
        "[": "{[}",  # after a line's end it would begin an option
        "±": r"$\pm$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "λ": r"$\lambda$",  # noqa: RUF001
        "τ": r"$\tau$", "·": r"$\cdot$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$",  # noqa: RUF001
    }
)  # fmt: skip
MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\|*`<["})


def one_line(text: str) -> str:
    """On one line: a line's end would end a row, and an empty line a caption."""
    return " ".join(text.split())


def markdown(text: str) -> str:
    """One line of text as it is, whatever signs it has."""
    return one_line(text).translate(MARKDOWN)


def latex(text: str) -> str:
    """The same for LaTeX."""
    return one_line(text).translate(LATEX)


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """A table whose columns are ranged right, but for those in `left`. Cells are Markdown already."""
    rules = ["---" if place in left else "---:" for place in range(len(heads))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows))


def latex_table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)
) -> str:
    """A table for booktabs. Caption and cells are LaTeX already."""
    columns = "".join("l" if place in left else "r" for place in range(len(heads)))
    first, *rest = (" & ".join(cells) + r" \\" for cells in (heads, *rows))
    top = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{columns}}}"]
    bottom = [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join([*top, r"\toprule", first, r"\midrule", *rest, *bottom])
