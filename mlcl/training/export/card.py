"""Writes the README of an exported model, which is also the model card that the Hugging Face Hub reads."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mlcl.config.safe_yaml import dump_yaml
from mlcl.data.format import plural
from mlcl.evaluation import Decision
from mlcl.markup import markdown, markdown_table
from mlcl.training.export.model_index import Index

EXAMPLES = {"text": '["a text"]', "image": '["an_image.png"]', "vectors": "[[0.1, 0.2, ...]]"}
PIPELINES = {"text": "text", "image": "image", "vectors": "tabular"}
"""The first word of the Hub's name of the task, keyed by modality."""
TASKS = {"single": "multi-class", "multi_label": "multi-label", "aspects": "aspects"}
LICENCES = frozenset(
    (
        "apache-2.0", "mit", "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0",
        "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0",
        "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cdla-permissive-1.0",
        "cdla-permissive-2.0", "cdla-sharing-1.0", "odc-by", "odbl", "pddl", "gfdl", "gpl-3.0",
        "bsd-3-clause",
    )
)  # fmt: skip
"""The Hub's identifiers of licences that data sets have."""
UNSTATED = re.compile(r"(none|not) stated.*|none|unknown|", re.IGNORECASE)

_TEXT = """---
{front}---

# {title}

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

{sections}## Files

| file | what |
|---|---|
| `model.json` | label names, predictors, metrics, and a SHA-256 of every file but itself and this one |
| `weights.safetensors` | encoder, classifier, linear probe; or the fitted values of a baseline |
| `datastore.parquet` | id, embedding and label of every training row, for the neighbours of a network |
| `job.yaml` | the job that was trained |
| `tokenizer.json`, `config.json` | of text encoders, of pretrained ones |
| `features/` | frozen inputs: the terms of TF-IDF, a copy of a frozen model |
| `ensemble/` | of an ensemble, the values and the further inputs of its baseline |

## Data and licence

The training data are {data}, fingerprint `{fingerprint}`, from {source}. Their licence: {licence}. The model
holds ids, embeddings and labels of the training rows. A pretrained encoder has a licence of its own.

{provenance}
"""
_DESCRIPTION = """{kind} reads {contents} and predicts {what}.
By default it predicts with `{best}`, the best on validation by {metric}; `predictor=` selects another:

{predictors}"""


def model_card(index: Index, folder: str, sections: Sequence[str] = ()) -> str:
    """Returns the README: front matter for the Hub, how to load the model, its metrics and its provenance.

    `folder` is the name of the model's folder. `sections` are further sections in Markdown, on what its sweep
    or table found and on other formats in the folder.
    """
    provenance = index.provenance
    names = [provenance[key] for key in ("experiment", "name") if key in provenance]
    title = ", ".join(names) or provenance["data"]
    return _TEXT.format(
        front=dump_yaml(_front_matter(index, title), allow_unicode=True, width=1000),
        title=markdown(title),
        folder=folder,
        example=EXAMPLES[index.modality],
        description=describe(index),
        sections="".join(f"{section}\n\n" for section in sections if section),
        data=markdown(provenance["data"]),
        fingerprint=provenance["data_fingerprint"],
        source=markdown(provenance["data_source"] or "an unnamed source"),
        licence=markdown(provenance["data_licence"] or "not stated"),
        provenance=markdown_table(
            ("from", ""), [(key, markdown(value)) for key, value in provenance.items()], left=(0, 1)
        ),
    )


def _front_matter(index: Index, title: str) -> dict[str, Any]:
    """Returns the metadata that the Hub reads: licence, tags and the test metrics of the best predictor."""
    provenance, task = index.provenance, f"{PIPELINES[index.modality]}-classification"
    prefix = f"{index.prefix(index.best)}test/"
    figures = {
        name.removeprefix(prefix): value
        for name, value in index.metrics.items()
        if name.startswith(prefix) and math.isfinite(value)
    }
    data = {"name": provenance["data"], "type": provenance["data"], "split": "test"}
    data["revision"] = provenance["data_fingerprint"]
    metrics = [
        {"type": "f1" if name.endswith("_f1") else name, "name": f"{name} of {index.best}", "value": value}
        for name, value in sorted(figures.items(), key=lambda item: item[0] != index.metric)
    ]
    results = [{"task": {"type": task}, "dataset": data, "metrics": metrics}]
    return {
        **_licence_fields(provenance["data_licence"]),
        "library_name": "mlcl",
        "pipeline_tag": task,
        "tags": ["mlcl", *(["contrastive-learning"] if index.baseline is None else []), TASKS[index.task]],
        **({"metrics": sorted({metric["type"] for metric in metrics})} if metrics else {}),
        **({"model-index": [{"name": title, "results": results}]} if metrics else {}),
    }


def _licence_fields(text: str) -> Mapping[str, str]:
    """Returns the Hub's fields for the licence of the data, as their source declares it."""
    slug = re.sub(r"[\s_]+", "-", text.strip().lower())
    if slug in LICENCES:
        return {"license": slug}
    if UNSTATED.fullmatch(text.strip()):
        return {"license": "unknown"}
    return {"license": "other", "license_name": "licence-of-the-data", "license_link": "README.md"}


def describe(index: Index) -> str:
    """Describes in Markdown what the model reads and predicts, and the metrics of each predictor."""
    content = f"{'any number' if index.task == 'multi_label' else 'one'} of {index.space.n_classes} classes"
    if index.task == "aspects":
        content = f"a rating for each of {len(index.space.aspects)} aspects"
    return _DESCRIPTION.format(
        kind="It" if index.baseline is None else f"The baseline `{index.baseline}`",
        contents=plural(index.modality),
        what=f"{content} (`{index.labels}`)",
        best=index.best,
        metric=index.metric,
        predictors=_describe_predictors(index),
    )


def _describe_predictors(index: Index) -> str:
    rows = []
    for predictor, setting in index.predictors.items():
        settings = (
            []
            if setting is None
            else [f"k {setting.k}, lambda {setting.lambda_:g}, temperature {setting.temperature:g}"]
        )
        if predictor == "ensemble" and index.ensemble is not None:
            settings.append(f"weight of the baseline {index.ensemble.weight:g}")
        if index.task == "multi_label":
            settings.append(_describe_decision(index.decisions[predictor]))
        names = (f"{index.prefix(predictor)}{split}/{index.metric}" for split in ("val", "test"))
        values = [index.metrics.get(name) for name in names]
        cells = ("" if value is None else f"{value:.4f}" for value in values)
        rows.append((f"`{predictor}`", "; ".join(settings), *cells))
    heads = ("predictor", "settings", f"validation {index.metric}", f"test {index.metric}")
    return markdown_table(heads, rows, left=(0, 1))


def _describe_decision(decision: Decision) -> str:
    if decision.k is not None:
        return f"the {decision.k} most probable labels"
    threshold = "their own threshold" if len(decision.thresholds) > 1 else f"{decision.thresholds[0]:.3g}"
    return f"labels from {threshold}" + (", and the most probable" if decision.at_least_one else "")
