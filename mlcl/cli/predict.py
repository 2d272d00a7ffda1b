"""`mlcl predict`: labels for a file, a folder of images or a data set."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from mlcl.cli.options import DEFAULT_HOME, ENCODING, Delimiter, Encoding, Header, Home, Json, Text
from mlcl.cli.output import errors, metrics_table, print_json, results, say
from mlcl.markup import counted

if TYPE_CHECKING:
    from mlcl.training.export.prediction_files import Columns


IdColumn = Annotated[str | None, typer.Option("--id", help="Its column of ids; default: id, or numbers.")]
Split = Annotated[str | None, typer.Option("--split", help="Of a data set; default: test.")]
Model = Annotated[str, typer.Argument(help="An exported folder, or models:/NAME@ALIAS.")]
Input = Annotated[
    Path, typer.Argument(help=".csv .tsv .jsonl .json .parquet .txt, a folder of images, or a data set.")
]
Out = Annotated[Path | None, typer.Option("--out", help=".csv, .jsonl or .parquet; default: CSV, printed.")]
WayName = Annotated[
    str | None, typer.Option("--way", help="classifier, probe, knn or knn_best; default: the best.")
]


def predict(
    model: Model,
    input: Input,
    out: Out = None,
    text: Text = None,
    id: IdColumn = None,
    encoding: Encoding = ENCODING,
    delimiter: Delimiter = None,
    header: Header = None,
    split: Split = None,
    way: WayName = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also the probabilities of all classes.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", min=0, max=1, help="Of several labels; default: the model's."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", min=1, help="Rows at once; default: the job's.")
    ] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device")] = "auto",
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Label texts or images. A data set with the model's labels is scored as the run was."""
    from mlcl.data.tables.files import Dialect
    from mlcl.training.export import load_model
    from mlcl.training.export.labelling import SPLIT, Labelling
    from mlcl.training.export.prediction_files import TableColumns, check_form, check_place, csv_sink, sink

    if out is not None:
        check_form(out)
        for read in (input, Path(model)):
            check_place(out, read)
    with _folder(model, home) as folder:
        loaded, columns = (
            load_model(folder, device),
            TableColumns(tuple(text or ()), id, Dialect(encoding, delimiter, header)),
        )
        labelling = Labelling(loaded, input, split, way, threshold, batch_size, probabilities, columns)
        if out is not None:
            with sink(out) as write:
                result = labelling.run(write)
        else:
            result = labelling.run(_drop if json else csv_sink(sys.stdout))
    if json:
        told = {"rows": result.rows, "unread": result.unread, "out": out, "way": result.way}
        print_json(told | {"metrics": result.metrics})
        return
    if result.metrics:
        title = escape(f"{input}, {split or SPLIT}")
        (errors if out is None else results).print(metrics_table(result.metrics, title))
    if result.unknown:
        say("not scored: the data set does not have the labels that the model predicts")
    if result.unread:
        say(f"{counted(result.unread, 'row')} without a label, as the column error says")
    say(f"{counted(result.rows, 'row')} by {result.way}" + ("" if out is None else f" in {out}"))


def _drop(_columns: Columns) -> None:
    """Drops the rows: with --json and without --out only the document is printed."""


@contextmanager
def _folder(model: str, home: Path) -> Iterator[Path]:
    if not model.startswith("models:"):
        yield Path(model)
        return
    from mlcl.tracking import Tracker
    from mlcl.tracking.registry import fetch_registered

    with TemporaryDirectory(prefix="mlcl-") as scratch:
        yield fetch_registered(Tracker.existing(home), model, Path(scratch))
