"""From YAML and `key.path=value` overrides to a checked job, or to one clear error."""

from __future__ import annotations

import copy
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mlcl.config.encoder_section import EncoderConfig
from mlcl.config.job import JobConfig
from mlcl.config.plugin_files import read_plugins
from mlcl.config.safe_yaml import MOST_CHARACTERS, load_yaml
from mlcl.errors import UserError, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UserError for a missing, empty or malformed one."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except FileNotFoundError:
        raise UserError("no such file", file=path) from None
    except (OSError, ValueError) as error:
        raise UserError("cannot be read", file=path, found=error) from None
    try:
        tree = load_yaml(text)
    except yaml.YAMLError as error:
        raise UserError("not valid YAML", file=path, found=error) from None
    if not isinstance(tree, dict):
        raise UserError(
            "must be a mapping of keys", file=path, found="nothing" if tree is None else type(tree).__name__
        )
    return tree


def parse_override(text: str) -> tuple[str, Any]:
    """`train.epochs=2` as ("train.epochs", 2); the value is read as YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or any(not part for part in key.strip().split(".")):
        raise UserError("not an override", found=text, allowed="key.path=value")
    try:
        return key.strip(), load_yaml(value)
    except yaml.YAMLError as error:
        raise UserError("value is not valid YAML", key=key, found=error) from None


def apply_overrides(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `tree` with dotted keys set; missing mappings on the way are made.

    A part `*` within a key stands for each key that the tree has there, which may be none.
    """
    result = copy.deepcopy(dict(tree))
    given = [(key, value) for pattern, value in overrides.items() for key in _without_star(tree, pattern)]
    for dotted, value in given:
        node = result
        *parents, last = dotted.split(".")
        for depth, part in enumerate(parents):
            child = node.get(part)
            if child is None:
                child = node[part] = {}
            if not isinstance(child, dict):
                raise UserError(
                    "has no keys below it", key=".".join(parents[: depth + 1]), found=f"override of {dotted}"
                )
            node = child
        node[last] = value
    return result


def _without_star(tree: Mapping[str, Any], dotted: str) -> list[str]:
    before, star, after = dotted.partition(".*.")
    if not star:
        return [dotted]
    node: Any = tree
    for part in before.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    if not isinstance(node, Mapping):
        raise UserError("has no keys that * could stand for", key=before, found=f"override of {dotted}")
    return [key for name in node for key in _without_star(tree, f"{before}.{name}.{after}")]


def load_job(
    source: str | Path | Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any] = ()
) -> JobConfig:
    """The checked job of a file or a mapping, overrides applied. Its plugin files are run.

    Raises UserError that names file, key, what was found and what is allowed.
    """
    file = source if isinstance(source, (str, Path)) else None
    tree = read_yaml(source) if isinstance(source, (str, Path)) else dict(source)
    if not isinstance(overrides, Mapping):
        overrides = dict(parse_override(text) for text in overrides)
    written = tree
    try:
        tree = read_plugins(apply_overrides(tree, overrides), None if file is None else Path(file))
        return validate(JobConfig, tree, file)
    except UserError as error:
        _check_heads(written, overrides, error)
        # The file has no part in what an override got wrong.
        if not any(f"{error.key}.".startswith(f"{key}.") for key in overrides):
            raise
        raise error.but(file=None) from None


def _check_heads(tree: Mapping[str, Any], overrides: Mapping[str, Any], error: UserError) -> None:
    """Raises UserError where the job is wrong in a head that only an override has: its name is misspelt."""
    objective = tree.get("objective")
    heads = objective.get("heads") if isinstance(objective, Mapping) else None
    *section, name = (error.key or "").split(".")[:3]
    if not isinstance(heads, Mapping) or section != ["objective", "heads"] or name in heads:
        return
    for key in overrides:
        if key.startswith(f"objective.heads.{name}."):
            problem = f"no such head{did_you_mean(name, heads)}"
            raise UserError(
                f"the override names {problem}", key=key, found=name, allowed=sorted(heads)
            ) from None


def validate(model: type[Model], tree: Mapping[str, Any], file: str | Path | None) -> Model:
    """`tree` as `model`; the first problem becomes a UserError with the nearest key."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise _user_error(model, tree, error.errors(), file) from None


def _user_error(
    model: type[BaseModel], tree: Mapping[str, Any], errors: list[ErrorDetails], file: str | Path | None
) -> UserError:
    # A typo gives two errors (the unknown key, the missing right one): the typo is the cause.
    detail = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    keys = [str(part) for part in detail["loc"]]
    path = _written_path(tree, detail)
    dotted = ".".join(path) or None
    # The alternatives of a union fail at one place, and a list within which something failed fails again.
    here = [error for error in errors if _written_path(tree, error) == path]
    others = sum(_written_path(tree, error) != path[: len(_written_path(tree, error))] for error in errors)
    more = f" (and {others} more)" if others else ""
    if detail["type"] == "extra_forbidden":
        known = _keys_at(model, tree, keys[:-1])
        problem = f"unknown key{did_you_mean(keys[-1], known)}"
        return UserError(problem, file=file, key=dotted, found=keys[-1], allowed=sorted(known))
    if detail["type"] == "missing":
        return UserError(f"missing key{more}", file=file, key=dotted)
    context = detail.get("ctx", {})
    found = detail["input"]
    return UserError(
        _problem(here) + more,
        file=file,
        key=dotted,
        found=None if isinstance(found, Mapping) and detail["type"] == "value_error" else found,
        allowed=context.get("expected") or context.get("expected_tags"),
    )


def _problem(alternatives: Sequence[ErrorDetails]) -> str:
    """What is wrong with a value, as one sentence over the alternatives that its key allows."""
    if len(alternatives) == 1:
        message = alternatives[0]["msg"].removeprefix("Value error, ")
        message = re.sub("Unable to extract tag using discriminator '(\\w+)'", r"needs the key \1", message)
    else:
        allowed = (error["msg"].partition(", unable")[0] for error in alternatives)
        message = "Input should be " + ", or ".join(text.removeprefix("Input should be ") for text in allowed)
    message = re.sub(r"valid dictionary( or instance of \w+)?", "section with keys", message)
    message = re.sub("valid (tuple|list)", "list", message)
    return message[:1].lower() + message[1:]


def _written_path(tree: Any, error: ErrorDetails) -> list[str]:
    """Where an error lies, without what pydantic adds to a location when it tries a union."""
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
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                for name, field in kind.model_fields.items():
                    if part in (name, field.alias):
                        following += _members(field.annotation)
            elif typing.get_origin(kind) is dict:
                following += _members(typing.get_args(kind)[1])
        tagged = [kind for kind in here if part in _tags_of(kind)]
        here = following or tagged or here
        here = [EncoderConfig.of(tree) or kind if kind is EncoderConfig else kind for kind in here]
    models = [kind for kind in here if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return {field.alias or name for kind in models for name, field in kind.model_fields.items()}


def _tags_of(kind: Any) -> set[str]:
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return set()
    tags = {kind.__name__}
    for key in {"name", "kind"} & kind.model_fields.keys():
        tags |= set(map(str, typing.get_args(kind.model_fields[key].annotation)))
    return tags


def _members(annotation: Any) -> list[Any]:
    """The alternatives of a union, without Annotated and None."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [member for arg in typing.get_args(annotation) for member in _members(arg)]
    return [] if annotation is type(None) else [annotation]
