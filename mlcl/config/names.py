"""Names as a job writes them: of plugins and of metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from mlcl.plugins import BUILT_IN, UnknownPluginError, files_are_run, registry


@dataclass(frozen=True)
class PluginName:
    """Checks, as part of an `Annotated[str, ...]`, that the string names a plugin of a kind, such as losses.

    An unknown name is an error that lists the nearest and all known ones, with where those from outside come
    from.
    """

    plural: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, name: str) -> str:
        """The name itself. Raises PluginError for a plugin from outside that cannot be used."""
        try:
            registry(self.plural)[name]
        except UnknownPluginError as error:
            if not files_are_run():
                return name
            context = {"kind": error.kind, "near": error.hint, "expected": ", ".join(error.allowed)}
            raise PydanticCustomError("unknown_plugin", "unknown {kind}{near}", context) from None
        return name

    def built_in(self) -> list[str]:
        """The names of the built-in plugins."""
        return [name for name, origin in registry(self.plural).origins().items() if origin == BUILT_IN]


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
