"""Signs that mean something in LaTeX and Markdown."""

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
MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\|*`<"})
