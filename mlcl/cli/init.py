"""`mlcl init`: writes a job and a space for a file of data."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from contextlib import suppress
from json import loads
from pathlib import Path
from typing import Annotated, Literal

import typer

from mlcl.cli.options import DEFAULT_HOME, ENCODING, Delimiter, Encoding, Header, Home, Json, Text
from mlcl.cli.output import answer, answer_to
from mlcl.errors import UserError, escape_unprintable

Treated = Literal["negative", "leave_out", "ignore"]
Paths = Annotated[
    list[Path],
    typer.Argument(
        help="A .csv .tsv .jsonl .json .parquet or .txt file, or several with the same columns such as "
        "train.csv and test.csv; a folder of images; or a prepared data set."
    ),
]
Image = Annotated[str | None, typer.Option("--image", help="The column of images.")]
Vectors = Annotated[str | None, typer.Option("--vectors", help="The column of vectors.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--labels", help="The column of the labels, or a pattern as 'is_*'; several are levels."),
]
Kind = Annotated[
    Literal["single", "multi_label", "path"] | None, typer.Option("--kind", help="Of the labels.")
]
Separator = Annotated[
    str | None, typer.Option("--separator", help="Between the labels of a row, or the levels of a path.")
]
ClassNames = Annotated[
    str | None, typer.Option("--names", "--classes", help="Of the classes, in order: a,b,c or a file.")
]
Threshold = Annotated[float | None, typer.Option("--threshold", help="Of shares: the least that is a label.")]
Missing = Annotated[Treated | None, typer.Option("--missing", help="What a blank among 0 and 1 means.")]
Uncertain = Annotated[Treated | None, typer.Option("--uncertain", help="What -1 among 0 and 1 means.")]
IdColumn = Annotated[str | None, typer.Option("--id", help="The column of a unique id.")]
SplitColumn = Annotated[str | None, typer.Option("--split", help="The column of the split.")]
Group = Annotated[
    str | None, typer.Option("--group", help="The column of what stays in one split, such as a patient.")
]
Twins = Annotated[
    Literal["apart", "together"],
    typer.Option("--twins", help="Texts equal but for numbers or a side: kept in one split?"),
]
AllowUntrained = Annotated[
    bool, typer.Option("--allow-untrained", help="Accept labels that only the test split has.")
]
HEADERS = {"label", "labels", "class", "classes", "name", "names", "category", "categories"}
"""First lines, in small letters, that are the header of a column of class names."""
TABLES, YAML = {".csv", ".tsv"}, {".yaml", ".yml"}
To = Annotated[Path, typer.Option("--to", help="The folder to write to.")]
Budget = Annotated[
    str, typer.Option("--budget", help="Time of the sweep, which decides what it compares: 20m, 2h, 4cpu-h.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Ask nothing: what is not clear is an error.")]


def init(
    paths: Paths,
    text: Text = None,
    image: Image = None,
    vectors: Vectors = None,
    labels: Labels = None,
    kind: Kind = None,
    separator: Separator = None,
    names: ClassNames = None,
    threshold: Threshold = None,
    missing: Missing = None,
    uncertain: Uncertain = None,
    id: IdColumn = None,
    split: SplitColumn = None,
    group: Group = None,
    twins: Twins = "apart",
    encoding: Encoding = ENCODING,
    delimiter: Delimiter = None,
    header: Header = None,
    allow_untrained: AllowUntrained = False,
    to: To = Path(),
    budget: Budget = "20m",
    yes: Yes = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Inspect data, print what it is, and write job.yaml, space.yaml and a README with the next commands."""
    from mlcl.service.starter.starter import start
    from mlcl.service.starter.table_options import UserOptions

    user_options = UserOptions(
        encoding, delimiter, header, tuple(text or ()), image, vectors, tuple(labels or ()), kind, separator,
        _read_names(names), threshold, missing, uncertain, id, split, group, twins, allow_untrained,
    )  # fmt: skip
    ask = None if yes or json or not sys.stdin.isatty() else _ask
    result = start(paths, to, home, user_options, ask, budget)
    tree = {"found": result.found, "rules": result.rules, "files": result.files, "data": result.data}
    lines = (*result.found, "", *result.rules, "", f"wrote {', '.join(map(str, result.files))}")
    answer(tree, *map(escape_unprintable, lines), f"next: {result.next}", as_json=json)


def _read_names(text: str | None) -> tuple[str, ...]:
    """Returns the names in a text, a line of CSV, or in the file of that path."""
    if text is None:
        return ()
    file = Path(text)
    if file.suffix and "," not in text and not file.is_file():
        raise UserError("no such file", file=file, key="names", allowed="a file, or names as a,b,c")
    try:
        words = _read_name_file(file) if file.is_file() else next(csv.reader([text], skipinitialspace=True))
    except (OSError, UnicodeError, csv.Error) as error:
        raise UserError("cannot be read", file=file, key="names", found=error) from None
    return tuple(word.strip() for word in words if word.strip())


def _read_name_file(file: Path) -> list[str]:
    """Returns the names in a file of one name per line or of JSON. Raises UserError for any other file."""
    text = file.read_text(encoding="utf-8-sig").strip()
    lines, kind = text.splitlines(), file.suffix.lower()
    if kind == ".json" or text.startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            content = loads(text)
            if isinstance(content, dict) and content.keys() == set(map(str, range(len(content)))):
                content = [content[str(number)] for number in range(len(content))]
            names = content if isinstance(content, list) else []
            if names and all(isinstance(name, str) and name.strip() for name in names):
                return names
        allowed = '["a", "b"], or {"0": "a", "1": "b"} from 0 on, as JSON'
        raise UserError("no names in order", file=file, key="names", found=lines[:2], allowed=allowed)
    table = kind in TABLES and any(sign in line for line in lines for sign in ",;\t")
    if table or kind in YAML or text.partition("\n")[0].strip().lower() in HEADERS:
        allowed = "a name a line without a header, or a list as JSON"
        raise UserError("no list of names", file=file, key="names", found=lines[:2], allowed=allowed)
    return lines


def _ask(question: str, answers: Sequence[str], default: str) -> str:
    typer.echo(escape_unprintable(f"{question} {', '.join(answers)}"))
    return answer_to(f"Answer [{default}]") or default
