"""The report of a single run: its figures, its learning curve, its embeddings, where it comes from."""

from __future__ import annotations

import yaml
from mlflow.entities import Run

from mlcl.report.document import (
    Cell,
    Code,
    Details,
    Document,
    Section,
    Table,
    Text,
    number_cell,
    plot_blocks,
    text_row,
)
from mlcl.report.embedding_plots import EmbeddingPlots
from mlcl.report.plots.learning_curves import learning_plot
from mlcl.report.plots.plot import build_plots
from mlcl.report.provenance import data_sections, provenance_table
from mlcl.report.runs import Runs
from mlcl.tracking import written
from mlcl.tracking.names import Tag

SPLITS = ("val", "test")


def run_document(runs: Runs, run: Run, draw_embeddings: EmbeddingPlots) -> Document:
    """The report with its plots."""
    id, tags = str(run.info.run_id), run.data.tags
    metric = run.data.params.get("evaluation.metric", "")
    name = str(tags.get(Tag.ID, id))
    curves, left = build_plots({"learning": lambda: learning_plot(metric, {name: [id]}, runs.history)})
    pictures, missing = draw_embeddings({name: [id]})
    knn = draw_embeddings.knn.get(name)
    said = [f"{metric} {run.data.metrics[metric]:.4f}."] if metric in run.data.metrics else []
    said += [f"The best neighbours on validation: {knn}."] if knn else []
    keys = written(run.data.params)
    sections = (
        Section("Result", (*map(Text, said), _metrics(run))),
        Section("Plots", plot_blocks([*curves, *pictures], [*left, *missing])),
        Section("What was asked", (Details("The job", (Code(yaml.safe_dump(keys)),)),)),
        *data_sections([run]),
        Section("Where it comes from", (provenance_table(run, [], runs.tracker.shown),)),
    )
    about = f"Run {name}, {tags.get(Tag.STATE, '')}, seed {tags.get(Tag.SEED, '')}"
    return Document(f"Run of {tags.get(Tag.DATA, 'its data')}", about, sections, (*left, *missing))


def _metrics(run: Run) -> Table:
    """A row for each figure, on validation and on test."""
    found: dict[str, dict[str, str]] = {}
    for metric in sorted(run.data.metrics):
        parts = metric.split("/")
        for split in SPLITS:
            if split in parts:
                found.setdefault("/".join(part for part in parts if part != split), {})[split] = metric
    if not found:
        return Table(("metric",), tuple(text_row(name) for name in sorted(run.data.metrics)))
    rows = [
        (Cell(name), *(_figure(run, its.get(split, "")) for split in SPLITS)) for name, its in found.items()
    ]
    return Table(("metric", "validation", "test"), tuple(rows))


def _figure(run: Run, metric: str) -> Cell:
    return number_cell(run.data.metrics.get(metric), metric, [str(run.info.run_id)])
