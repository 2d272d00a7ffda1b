"""Names of metrics as people write them: `micro-F1`, `f1_micro`, `validation/micro_f1` are `val/micro_f1`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

SHORT = {"acc": "accuracy", "hamming": "hamming_loss", "exact_match": "subset_accuracy"}
"""Other names of metrics."""
_AVERAGED = re.compile(r"(f1|precision|recall|auc)(?:_score)?_(micro|macro)")


def metric_name(text: Any) -> Any:
    """The name of a metric without a split, as mlcl writes it; what is no text stays as it is."""
    if not isinstance(text, str):
        return text
    name = re.sub(r"[\s-]+", "_", text.strip().lower())
    return SHORT.get(name) or _AVERAGED.sub(r"\2_\1", name)


def validation_metric(text: Any) -> Any:
    """The name of a metric on validation, `val/...` or `knn/val/...`; what is no text stays as it is."""
    if not isinstance(text, str):
        return text
    family, _, name = text.strip().rpartition("/")
    family = family.lower().replace("validation", "val") or "val"
    return f"{'knn/val' if family == 'knn' else family}/{metric_name(name)}"


def _on_validation(name: str) -> str:
    if not re.fullmatch(r"(knn/)?val/[a-z0-9_]+", name):
        raise ValueError("selection uses validation only: val/METRIC or knn/val/METRIC, see `mlcl metrics`")
    return name


ValidationMetric = Annotated[str, BeforeValidator(validation_metric), AfterValidator(_on_validation)]
