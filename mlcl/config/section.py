"""Sections of the files that a person writes: base class, types of fields, and the wording of errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from mlcl.errors import UserError, did_you_mean
from mlcl.plugins import BUILT_IN, UnknownPluginError, files_are_run, registry

Model = TypeVar("Model", bound=BaseModel)
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of a file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        names = cls.__pydantic_fields__
        if isinstance(value, Mapping) and not value.keys() <= names.keys():
            known = sorted(field.alias or name for name, field in names.items())
            unknown = [str(key) for key in value if key not in names and key not in known]
            if unknown and cls.model_config.get("extra") == "forbid":
                near = did_you_mean(unknown[0], known)
                context = {"near": near, "key": unknown[0], "expected": known}
                raise PydanticCustomError("unknown_key", "unknown key{near}", context)
        return value


def at_home(path: Path) -> Path:
    """`path` with a leading `~` replaced by the user's home; unchanged where there is no such user."""
    with suppress(RuntimeError):
        return path.expanduser()
    return path


UserPath = Annotated[Path, AfterValidator(at_home)]
"""A path as a user writes it in a job or on the command line."""


@dataclass(frozen=True)
class PluginName:
    """Checks, as part of an `Annotated[str, ...]`, that a string names a plugin of a kind, such as losses.

    The error for an unknown name lists the nearest name and all known ones; a name that is not built in is
    listed with its origin.
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


def validate(model: type[Model], tree: Mapping[str, Any], file: str | Path | None) -> Model:
    """Returns a tree, as read from a file, as an instance of a model.

    Raises:
        UserError: for the first problem, with the key, what was found and what is allowed.
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise _user_error(tree, error.errors()).but(file=file) from None


def _user_error(tree: Mapping[str, Any], errors: list[ErrorDetails]) -> UserError:
    detail = next((each for each in errors if each["type"] == "unknown_key"), errors[0])
    path, context = _written_path(tree, detail), detail.get("ctx", {})
    dotted = ".".join(path) or None
    if detail["type"] == "unknown_key":
        key = context["key"]
        dotted = ".".join([*path, key])
        return UserError(detail["msg"], key=dotted, found=key, allowed=context["expected"])
    # The alternatives of a union fail at the same key, and a list that contains a failure fails again.
    here = [error for error in errors if _written_path(tree, error) == path]
    others = sum(_written_path(tree, error) != path[: len(_written_path(tree, error))] for error in errors)
    more = f" (and {others} more)" if others else ""
    if detail["type"] == "missing":
        return UserError(f"missing key{more}", key=dotted)
    found = detail["input"]
    return UserError(
        _problem(here) + more,
        key=dotted,
        found=None if isinstance(found, Mapping) and detail["type"] == "value_error" else found,
        allowed=context.get("expected") or context.get("expected_tags"),
    )


def _problem(alternatives: Sequence[ErrorDetails]) -> str:
    """One sentence over the errors of all alternatives that a key allows."""
    if len(alternatives) == 1:
        message = alternatives[0]["msg"].removeprefix("Value error, ")
        message = re.sub("Unable to extract tag using discriminator '(\\w+)'", r"needs the key \1", message)
    else:
        allowed = (error["msg"].partition(", unable")[0] for error in alternatives)
        message = "Input should be " + ", or ".join(text.removeprefix("Input should be ") for text in allowed)
    message = re.sub(r"valid dictionary( or instance of \w+)?", "section with keys", message)
    message = re.sub("valid (tuple|list)", "list", message)
    message = re.sub(r"\w+ (should have .* items?) after validation, not \d+", r"\1", message)
    return message[:1].lower() + message[1:]


def _written_path(tree: Any, error: ErrorDetails) -> list[str]:
    """The location of an error without the parts that pydantic adds when it tries a union."""
    path = []
    for part in error["loc"]:
        listed = isinstance(tree, (list, tuple)) and isinstance(part, int) and part < len(tree)
        written = listed or (isinstance(tree, Mapping) and part in tree)
        if written or (error["type"] == "missing" and part == error["loc"][-1]):
            path.append(str(part))
            tree = tree[part] if written else None
    return path
