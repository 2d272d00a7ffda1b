"""The README of an exported model."""

from __future__ import annotations

from mlcl.data.format import plural
from mlcl.evaluation import Decision
from mlcl.markup import markdown, markdown_table
from mlcl.training.export.model_index import Index

README = "README.md"
EXAMPLES = {"text": '["a text"]', "image": '["an_image.png"]', "vectors": "[[0.1, 0.2, ...]]"}
_TEXT = """# {title}

Written by `mlcl export`. It holds all that predicting needs, and opens without a network, the data set, Ray
or MLflow.

```python
import mlcl

model = mlcl.load_model("{folder}")
found = model.predict({example})
found.labels, found.probabilities
```

`mlcl predict {folder} FILE` labels a file.

{description}

| file | what |
|---|---|
| `model.json` | label names, ways, figures, and a SHA-256 of every file but itself and this one |
| `weights.safetensors` | encoder, classifier, linear probe |
| `datastore.parquet` | id, embedding and label of every training row, for the neighbours |
| `job.yaml` | the job that was trained |
| `tokenizer.json`, `config.json` | of text encoders, of pretrained ones |
| `features/` | frozen inputs: the terms of TF-IDF, a copy of a frozen model |

{source}
"""
_DESCRIPTION = """It reads {contents} and predicts {what}.
By default it predicts with `{best}`, the best on validation by {metric}; `way=` chooses another:

{ways}"""


def readme(index: Index, folder: str) -> str:
    """The text: how to load the model, and its metrics."""
    provenance = index.provenance
    return _TEXT.format(
        title=markdown(", ".join(provenance[key] for key in ("experiment", "name") if key in provenance)),
        folder=folder,
        example=EXAMPLES[index.modality],
        description=describe(index),
        source=markdown_table(
            ("from", ""), [(key, markdown(value)) for key, value in provenance.items()], left=(0, 1)
        ),
    )


def describe(index: Index) -> str:
    """What the model reads and predicts, and how well each way does, Markdown."""
    return _DESCRIPTION.format(
        contents=plural(index.modality),
        what=_what(index),
        best=index.best,
        metric=index.metric,
        ways=_ways(index),
    )


def _what(index: Index) -> str:
    if index.task == "aspects":
        return f"a rating for each of {len(index.space.aspects)} aspects (`{index.labels}`)"
    several = "any number" if index.task == "multi_label" else "one"
    return f"{several} of {index.space.n_classes} classes (`{index.labels}`)"


def _ways(index: Index) -> str:
    rows = []
    for way, its in index.ways.items():
        how = [] if its is None else [f"k {its.k}, lambda {its.lambda_:g}, temperature {its.temperature:g}"]
        if index.task == "multi_label":
            how.append(_labels(index.decision(way)))
        names = (f"{index.prefix(way)}{split}/{index.metric}" for split in ("val", "test"))
        values = [index.metrics.get(name) for name in names]
        figures = ("" if value is None else f"{value:.4f}" for value in values)
        rows.append((f"`{way}`", "; ".join(how), *figures))
    heads = ("way", "settings", f"validation {index.metric}", f"test {index.metric}")
    return markdown_table(heads, rows, left=(0, 1))


def _labels(decision: Decision) -> str:
    """Which of several labels are predicted."""
    if decision.k is not None:
        return f"the {decision.k} most probable labels"
    at = "their own threshold" if len(decision.thresholds) > 1 else f"{decision.thresholds[0]:.3g}"
    return f"labels from {at}" + (", and the most probable" if decision.at_least_one else "")
