"""The base class of the sections of files, types of their fields, and the messages of their errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema
from typing_extensions import Self

from mlcl.errors import UserError, did_you_mean
from mlcl.plugins import BUILT_IN, UnknownPluginError, files_are_run, registry

Model = TypeVar("Model", bound=BaseModel)
LONGEST_NAME = 200
"""The length in characters of the longest name of an experiment, a sweep or a table: names of files that
contain it have at most 255 bytes, and MLflow's databases keep 250 characters."""
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=100)]
"""The name of a head or a scale: a head's is part of dotted keys, of which MLflow keeps 250 characters."""
ExperimentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]


_NO_TRUTH = frozenset({NoneType, str, int, float})
"""The types of written values that neither are nor contain a truth value."""


class Section(BaseModel):
    """The base class of sections. They are frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_keys(cls, value: Any) -> Any:
        names = cls.__pydantic_fields__
        if isinstance(value, Mapping) and not value.keys() <= names.keys():
            known_keys = sorted(field.alias or name for name, field in names.items())
            unknown_keys = [str(key) for key in value if key not in names and key not in known_keys]
            if unknown_keys and cls.model_config.get("extra") == "forbid":
                hint = did_you_mean(unknown_keys[0], known_keys)
                context = {"near": hint, "key": unknown_keys[0], "expected": known_keys}
                raise PydanticCustomError("unknown_key", "unknown key{near}", context)
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _reject_booleans(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        section = handler(value)
        if isinstance(value, Mapping):
            for name, field in cls.__pydantic_fields__.items():
                key = field.alias if field.alias and field.alias in value else name
                raw_value = value.get(key)
                if type(raw_value) in _NO_TRUTH:
                    continue
                # pydantic accepts True as the number 1
                if _is_counted(raw_value, getattr(section, name)):
                    error = PydanticCustomError("bool_number", "needs a number, not true or false")
                    detail = InitErrorDetails(type=error, loc=(key,), input=value[key])
                    raise ValidationError.from_exception_data(cls.__name__, [detail])
        return section


def exactly_one(first_key: str, second_key: str) -> Any:
    """Returns a validator of a section that raises ValueError unless exactly one of two keys is given."""

    def check(section: Model) -> Model:
        if (getattr(section, first_key) is None) == (getattr(section, second_key) is None):
            raise ValueError(f"give exactly one of {first_key} and {second_key}")
        return section

    return model_validator(mode="after")(check)


def _is_counted(raw_value: Any, parsed_value: Any) -> bool:
    """Whether a truth value in the written content was read as a number."""
    if isinstance(raw_value, bool):
        return isinstance(parsed_value, (int, float)) and not isinstance(parsed_value, bool)
    if isinstance(raw_value, (list, tuple)) and isinstance(parsed_value, (list, tuple)):
        return any(map(_is_counted, raw_value, parsed_value))
    if isinstance(raw_value, Mapping) and isinstance(parsed_value, Mapping):
        return any(_is_counted(value, parsed_value.get(key)) for key, value in raw_value.items())
    return False


def at_home(path: Path) -> Path:
    """Returns `path` with a leading `~` expanded; unchanged if the user's home folder is unknown."""
    with suppress(RuntimeError):
        return path.expanduser()
    return path


UserPath = Annotated[Path, AfterValidator(at_home)]
"""A path in a job or on the command line, which may begin with `~`."""


def as_tuple(value: Any) -> Any:
    """Returns a tuple with the value if it is a text or a path; any other value is returned unchanged."""
    return (value,) if isinstance(value, str | Path) else value


@dataclass(frozen=True)
class PluginName:
    """A check for `Annotated[str, ...]`: the string must name a plugin of a kind, such as losses."""

    plural: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def check(self, name: str) -> str:
        """Returns the name.

        Raises:
            PluginError: The plugin is not built in and cannot be used.
            PydanticCustomError: No plugin has this name. In the context `only_reading` any name is accepted.
        """
        try:
            registry(self.plural)[name]
        except UnknownPluginError as error:
            if not files_are_run():
                return name
            context = {"kind": error.kind, "near": error.hint, "expected": ", ".join(error.allowed)}
            raise PydanticCustomError("unknown_plugin", "unknown {kind}{near}", context) from None
        return name

    def built_in(self) -> list[str]:
        """Returns the names of the built-in plugins."""
        return [name for name, origin in registry(self.plural).origins().items() if origin == BUILT_IN]


SHORT = {"acc": "accuracy", "hamming": "hamming_loss", "exact_match": "subset_accuracy"}
"""Accepted short names of metrics, mapped to the names in mlcl."""
_AVERAGED = re.compile(r"(f1|precision|recall|auc)(?:_score)?_(micro|macro)")


def metric_name(text: Any) -> Any:
    """Returns a metric's name as mlcl writes it: `F1 micro` gives `micro_f1`. Other types are unchanged."""
    if not isinstance(text, str):
        return text
    name = re.sub(r"[\s-]+", "_", text.strip().lower())
    return SHORT.get(name) or _AVERAGED.sub(r"\2_\1", name)


def validation_metric(text: Any) -> Any:
    """Returns a metric on validation: `acc` gives `val/accuracy`, `knn/acc` gives `knn/val/accuracy`."""
    if not isinstance(text, str):
        return text
    family, _, name = text.strip().rpartition("/")
    family = family.lower().replace("validation", "val") or "val"
    return f"{'knn/val' if family == 'knn' else family}/{metric_name(name)}"


def _check_metric_split(name: str) -> str:
    if not re.fullmatch(r"(knn/)?val/\w+", name):
        raise ValueError("selection uses validation only: val/METRIC or knn/val/METRIC, see `mlcl metrics`")
    return name


ValidationMetric = Annotated[str, BeforeValidator(validation_metric), AfterValidator(_check_metric_split)]


def validate(model: type[Model], tree: Mapping[str, Any], file: str | Path | None) -> Model:
    """Returns a file's tree as an instance of a model. Raises UserError for the first wrong key or value."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise _user_error(tree, error.errors()).with_fields(file=file) from None


def _user_error(tree: Mapping[str, Any], errors: list[ErrorDetails]) -> UserError:
    detail = next((error for error in errors if error["type"] == "unknown_key"), errors[0])
    path, context = _key_path(tree, detail), detail.get("ctx", {})
    dotted = ".".join(path) or None
    if detail["type"] == "unknown_key":
        key = context["key"]
        dotted = ".".join([*path, key])
        return UserError(detail["msg"], key=dotted, found=key, allowed=context["expected"])
    # All alternatives of a union fail at one key. A list with a wrong item is itself reported as wrong.
    errors_at_key = [error for error in errors if _key_path(tree, error) == path]
    count = sum(_key_path(tree, error) != path[: len(_key_path(tree, error))] for error in errors)
    suffix = f" (and {count} more)" if count else ""
    if detail["type"] == "missing":
        return UserError(f"missing key{suffix}", key=dotted)
    value = detail["input"]
    return UserError(
        _merge_problems(errors_at_key) + suffix,
        key=dotted,
        found=None if isinstance(value, Mapping) and detail["type"] == "value_error" else value,
        allowed=context.get("expected") or context.get("expected_tags"),
    )


def _merge_problems(alternatives: Sequence[ErrorDetails]) -> str:
    """Returns one message for the errors of all alternatives that a key allows."""
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


def _key_path(tree: Any, error: ErrorDetails) -> list[str]:
    """Returns the path of the key of an error, without the parts that pydantic adds for a union."""
    path = []
    for part in error["loc"]:
        is_index = isinstance(tree, (list, tuple)) and isinstance(part, int) and part < len(tree)
        exists = is_index or (isinstance(tree, Mapping) and part in tree)
        if exists or (error["type"] == "missing" and part == error["loc"][-1]):
            path.append(str(part))
            tree = tree[part] if exists else None
    return path
