"""The answer of a sweep or a comparison: verdicts, a frame of metrics, the best model, the report."""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from mlcl.api.common import home_of
from mlcl.errors import UserError
from mlcl.results.documents import read_sweep, read_table
from mlcl.results.runs import Runs, check_name, kind
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.results.table_verdicts import sentences_of
from mlcl.tracking import Tracker, dashboard, tracking_uri

if TYPE_CHECKING:
    import pandas as pd

    from mlcl.significance.verdict import Verdict
    from mlcl.training.export import ExportedModel


class Answer:
    """The result of a sweep or a table, which may still be incomplete.

    A notebook displays the verdicts (sentences, a forest plot and a table), and how to open MLflow's pages.

    Args:
        result: The typed result, with everything that the report shows.
        home: The folder of results.
        uri: The tracking store. Default: MLFLOW_TRACKING_URI, else the SQLite file under `home`.

    Example:
        >>> answer = mlcl.load("my-sweep")
        >>> print(answer.verdict)
        Cannot tell whether the heads help: ...
        >>> answer.best.predict(["fracture of the left arm"])
    """

    def __init__(self, result: SweepResult | TableResult, home: Path, uri: str | None = None) -> None:
        self.result, self.home, self._uri = result, home, uri

    @property
    def name(self) -> str:
        """The name of the sweep or table, by which `mlcl.load` and the command line find it."""
        return self.result.name

    @property
    def state(self) -> str:
        """COMPLETE, STOPPED, BUDGET or FAILED, with the `reason` in `result.reason`."""
        return str(self.result.state)

    @cached_property
    def verdicts(self) -> Sequence[Verdict]:
        """The verdicts: heads against control, then the best model against the best baseline.

        The verdicts of a table compare each loss and baseline with the control in the table's first figure.
        """
        return [verdict for _, verdict in self._named_verdicts]

    @cached_property
    def _named_verdicts(self) -> Sequence[tuple[str, Verdict]]:
        """The verdicts, each with the name of the table's row or column that contains all compared cells."""
        if isinstance(self.result, SweepResult):
            return [("", verdict) for verdict in self.result.verdicts]
        lead_figure, cells = self.result.figure_names[0], self.result.cells
        controls = [cell for cell in cells if cell.row == self.result.control] or cells
        metrics = {
            figure.metric for cell in controls for figure in cell.figures if figure.name == lead_figure
        }
        return [(name, verdict) for name, verdict in self.result.verdicts if verdict.metric in metrics]

    @property
    def verdict(self) -> str:
        """The verdicts in words, a sentence on each line; empty without fresh seeds."""
        return "\n".join(sentences_of(self._named_verdicts))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A pandas frame with one row for each training of the sweep or of the table's cells.

        The columns are those of `mlcl.results.load`.
        """
        from mlcl.results.frame import sweep_frame, table_frame

        result = self.result
        return sweep_frame(result) if isinstance(result, SweepResult) else table_frame(result)

    @cached_property
    def best(self) -> ExportedModel:
        """The best model on validation, exported to `HOME/models/RUN_ID`; see `mlcl.load_model`."""
        from mlcl.service.export_run import MODELS, export_run
        from mlcl.training.export import load_model

        run_id = self._best_run_id()
        folder = self.home / MODELS / run_id
        if not folder.exists():
            export_run(self._tracker(), run_id)
        return load_model(folder)

    def push_to_hub(self, repo: str, *, also: Sequence[str] = (), public: bool = False) -> str:
        """Sends the best model to a repository of the Hugging Face Hub, and returns the address.

        Args:
            repo: The repository, `USER/NAME`; it is created if necessary. The token is HF_TOKEN or that of
                `hf auth login`.
            also: Further formats: `onnx`, `sentence-transformers`, `sentence-transformers:HEAD`.
            public: Whether the repository may be public.

        Raises:
            UserError: There is no model, token, network or permission, or a format would not be exact.
        """
        from mlcl.service.export_run import export_run

        export = export_run(self._tracker(), self._best_run_id(), formats=also, push=repo, public=public)
        return str(export.pushed)

    def _tracker(self) -> Tracker:
        return Tracker.open_existing(self.home, self._uri)

    def _best_run_id(self) -> str:
        """Returns the MLflow id of the best model's run. Raises UserError if no training is complete."""
        result = self.result
        best = result.best_training if isinstance(result, SweepResult) else None
        run_id = _best_table_run(result) if isinstance(result, TableResult) else best.run_id if best else None
        if run_id is None:
            raise UserError("has no model yet", key="best", found=f"{self.name} ({self.state})")
        return run_id

    def to_job(self, file: str | Path) -> Path:
        """Writes the job of the best model to a file, and returns the file.

        Raises UserError if there is no model yet, the file exists, or its folder does not.
        """
        from mlcl.training.run_files import JOB, MODEL

        target = Path(file)
        if target.exists():
            raise UserError("already exists and is not replaced", file=target, key="to_job")
        if not target.absolute().parent.is_dir():
            raise UserError("its folder does not exist", file=target, key="to_job")
        runs = Runs(self._tracker())
        run = runs.get(self._best_run_id())
        assert run is not None
        target.write_text(runs.text(run, f"{MODEL}/{JOB}"), encoding="utf-8")
        return target

    def report(self) -> Path:
        """Writes the report, as `mlcl report` does, and returns its page."""
        from mlcl.report.report import make_report

        return make_report(Runs(self._tracker()), self.result.id, self.home).page

    @property
    def dashboard(self) -> str:
        """The command or address that opens MLflow's pages."""
        return dashboard(self._uri or tracking_uri(self.home))

    def __repr__(self) -> str:
        reason = f" ({self.result.reason})" if self.result.reason else ""
        head, pages = f"{self.name}: {self.state}{reason}", f"MLflow: {self.dashboard}"
        return "\n".join([head, *self.verdict.splitlines(), pages])

    def _repr_html_(self) -> str:
        state, *lines, pages = (f"<p>{_link_address(line)}</p>" for line in repr(self).splitlines())
        if not self.verdicts:
            return state + pages
        from mlcl.report.plots.charts import to_svg
        from mlcl.report.plots.comparison_plots import forest_plot

        plot = forest_plot(self.verdicts)
        table = plot.table.to_html(index=False, float_format="{:.4f}".format, na_rep="")
        return "".join([state, to_svg(plot.figure()), *lines, table, pages])


def _link_address(line: str) -> str:
    """Returns a line as HTML in which the address of a server, its last word, is a link."""
    *words, last_word = html.escape(line).split(" ")
    is_address = last_word.startswith(("http://", "https://"))
    return " ".join([*words, f'<a href="{last_word}">{last_word}</a>' if is_address else last_word])


def _best_table_run(table: TableResult) -> str | None:
    """Returns the MLflow id of the best seed of the cell with the best mean on validation.

    Cells of baselines are left out. Returns None if no cell has a value.
    """
    scores = []
    for cell in table.cells:
        figure = cell.figures[0]
        sign = 1 if table.higher[figure.name] else -1
        seed_scores = {seed: sign * value for seed, value in figure.validation_by_seed.items()}
        if seed_scores and "baseline" not in cell.params:
            scores.append(
                (fmean(seed_scores.values()), cell.run_id(max(seed_scores, key=seed_scores.__getitem__)))
            )
    return max(scores, key=lambda entry: entry[0])[1] if scores else None


def load(name: str, *, home: str | Path | None = None, uri: str | None = None) -> Answer:
    """Reads a sweep or a table, and returns it as an `Answer`.

    Args:
        name: The name or id of the sweep or table, or the id of its run in MLflow.
        home: The folder of results. Default: MLCL_HOME, else `outputs`.
        uri: The tracking store. Default: MLFLOW_TRACKING_URI, else the SQLite file under `home`.

    Raises:
        UserError: There is no such sweep or table.

    Example:
        >>> mlcl.load("my-sweep").frame
    """
    check_name(name)
    folder = home_of(home)
    runs = Runs(Tracker.open_existing(folder, uri))
    run = runs.require_group(name)
    return Answer(read_sweep(runs, run) if kind(run) == "sweep" else read_table(runs, run), folder, uri)
