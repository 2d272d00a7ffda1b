"""Lists the sections of a job file and the names of their keys, from the pydantic models."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic import BaseModel

from mlcl.config import encoder_section, job


def key_names() -> set[str]:
    """Returns the names of all keys of a job, without the names of the sections that contain them."""
    models = models_of(job.JobConfig, [])
    return {field.alias or name for model in models for name, field in model.model_fields.items()}


def models_of(model: type[BaseModel], seen: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """Adds `model` and the models of its sections, depth first, to `seen`. Returns `seen`."""
    if model not in seen:
        seen.append(model)
        for field in model.model_fields.values():
            for member in members_of(field.annotation):
                if is_model(member):
                    models_of(member, seen)
    return seen


def members_of(annotation: Any) -> list[Any]:
    """Returns the types that an annotation allows.

    These are the members of a union, the types of a dict's values, the sections of the built-in encoders for
    `encoder`, else the annotation itself.
    """
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
    """Whether an annotation is the class of a section."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
