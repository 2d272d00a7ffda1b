"""The sections of a job file and the names of their keys, read from the schema."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic import BaseModel

from mlcl.config import encoder_section, job


def key_names() -> set[str]:
    """The names of all keys of a job, without the sections that they are in."""
    models = models_of(job.JobConfig, [])
    return {field.alias or name for model in models for name, field in model.model_fields.items()}


def models_of(model: type[BaseModel], seen: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """Returns `seen` with `model` and every model below it added, in the order of the file."""
    if model not in seen:
        seen.append(model)
        for field in model.model_fields.values():
            for member in members_of(field.annotation):
                if is_model(member):
                    models_of(member, seen)
    return seen


def members_of(annotation: Any) -> list[Any]:
    """The alternatives of a key, of the values of a mapping, and the sections of built-in encoders."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return members_of(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return [member for argument in arguments for member in members_of(argument)]
    if origin is dict:
        return members_of(arguments[1])
    if annotation is encoder_section.EncoderConfig:
        return list(dict.fromkeys(encoder.section for encoder in encoder_section.built_in()))
    return [annotation]


def is_model(annotation: Any) -> bool:
    """Whether an annotation is a class of sections."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
