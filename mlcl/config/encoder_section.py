"""Reads the section `encoder` of a job, whose other keys depend on the key `name`.

Encoders are plugins that are declared in `mlcl.models.encoders`. The declaration of an encoder has the class
of its section.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticKnownError

from mlcl.config.section import Section
from mlcl.errors import UserError
from mlcl.plugins import BUILT_IN, PluginError, UnknownPluginError, files_are_run, registry


class EncoderConfig(Section):
    """The base class of the sections of all encoders."""

    name: str


class _UnreadEncoder(EncoderConfig):
    """The section of an unknown encoder, in a context in which plugin files are not run."""

    model_config = ConfigDict(frozen=True, extra="allow")


def built_in() -> list[Any]:
    """Returns the declarations of the built-in encoders, in the order of the job reference."""
    encoders = registry("encoders")
    declarations = [encoders[name] for name, origin in encoders.origins().items() if origin == BUILT_IN]
    return sorted(declarations, key=lambda encoder: (encoder.order, encoder.name))


def _read_section(value: Any, _: ValidatorFunctionWrapHandler) -> EncoderConfig:
    """Reads a section as the class of its encoder. Errors are like those of a union with a discriminator."""
    if isinstance(value, EncoderConfig):
        return value
    if not isinstance(value, Mapping):
        raise PydanticKnownError("model_attributes_type")
    if "name" not in value:
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "'name'"})
    name = str(value["name"])
    try:
        section: type[EncoderConfig] = registry("encoders")[name].section
    except UnknownPluginError as error:
        if files_are_run():
            problem = f"unknown {error.kind}{error.hint}"
            raise UserError(problem, key="encoder.name", found=name, allowed=error.allowed) from None
        section = _UnreadEncoder
    except PluginError as error:
        raise UserError(str(error), key="encoder.name", found=name) from None
    return section.model_validate(value)


EncoderSection = Annotated[SerializeAsAny[EncoderConfig], WrapValidator(_read_section)]
