"""Sections of the files that a person writes: base class, types of fields, and the wording of errors."""

from __future__ import annotations

import re
import types
import typing
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

    @classmethod
    def class_of(cls, value: Any) -> type[Section] | None:
        """The class that reads `value`: this one, unless the keys depend on the value. None if unknown."""
        del value
        return cls


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
    """`tree` as `model`.

    Raises:
        UserError: for the first problem, with the key, what was found and what is allowed.
    """
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise _user_error(model, tree, error.errors()).but(file=file) from None


def _user_error(model: type[BaseModel], tree: Mapping[str, Any], errors: list[ErrorDetails]) -> UserError:
    # A typo gives two errors, the unknown key and the missing right one; the typo is the cause.
    detail = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    keys = [str(part) for part in detail["loc"]]
    path = _written_path(tree, detail)
    dotted = ".".join(path) or None
    # The alternatives of a union fail at the same key, and a list that contains a failure fails again.
    here = [error for error in errors if _written_path(tree, error) == path]
    others = sum(_written_path(tree, error) != path[: len(_written_path(tree, error))] for error in errors)
    more = f" (and {others} more)" if others else ""
    if detail["type"] == "extra_forbidden":
        known = _keys_at(model, tree, keys[:-1])
        problem = f"unknown key{did_you_mean(keys[-1], known)}"
        return UserError(problem, key=dotted, found=keys[-1], allowed=sorted(known))
    if detail["type"] == "missing":
        return UserError(f"missing key{more}", key=dotted)
    context = detail.get("ctx", {})
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


def _keys_at(model: type[BaseModel], tree: Any, path: list[str]) -> set[str]:
    """The keys that `model` allows at a location of `tree`, for the nearest-key hint."""
    here: list[Any] = [model]
    for part in path:
        tree = tree.get(part) if isinstance(tree, Mapping) else None
        following: list[Any] = []
        for kind in here:
            if is_model(kind):
                for name, field in kind.model_fields.items():
                    if part in (name, field.alias):
                        following += alternatives(field.annotation)
            elif typing.get_origin(kind) is dict:
                following += alternatives(typing.get_args(kind)[1])
        tagged = [kind for kind in here if part in _tags_of(kind)]
        here = following or tagged or here
        here = [_class_of(kind, tree) for kind in here]
    models = [kind for kind in here if is_model(kind)]
    return {field.alias or name for kind in models for name, field in kind.model_fields.items()}


def _class_of(kind: Any, tree: Any) -> Any:
    """The class that reads `tree` where `kind` is a section's, else `kind`."""
    is_section = isinstance(kind, type) and issubclass(kind, Section)
    return (is_section and kind.class_of(tree)) or kind


def _tags_of(kind: Any) -> set[str]:
    """The parts by which pydantic names an alternative in the location of an error."""
    if not is_model(kind):
        return set()
    tags = {kind.__name__}
    for key in {"name", "kind"} & kind.model_fields.keys():
        tags |= set(map(str, typing.get_args(kind.model_fields[key].annotation)))
    return tags


def is_model(kind: Any) -> bool:
    """Whether it is a pydantic model's class."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union, without `Annotated` and None; of anything else the annotation itself."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return alternatives(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [member for each in typing.get_args(annotation) for member in alternatives(each)]
    return [] if annotation is type(None) else [annotation]
