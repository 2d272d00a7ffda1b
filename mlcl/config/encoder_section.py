"""The job's section `encoder`: which keys it has depends on the encoder that its `name` names.

Encoders are plugins, declared in `mlcl.models.encoders`. The section's class is taken from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

from pydantic import SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError, PydanticKnownError

from mlcl.config.section import Section
from mlcl.errors import UserError, nearest
from mlcl.plugins import BUILT_IN, PluginError, Registry, UnknownPluginError


class EncoderConfig(Section):
    """What the sections of all encoders have."""

    name: str

    @classmethod
    def of(cls, value: Any) -> type[EncoderConfig] | None:
        """The class of a section as it is written; None where its name names no encoder.

        Raises UserError for an encoder from outside that cannot be used.
        """
        try:
            section: type[EncoderConfig] = encoders()[str(value["name"])].section
        except (KeyError, TypeError, UnknownPluginError):
            return None
        except PluginError as error:
            raise UserError(str(error), key="encoder.name", found=value["name"]) from None
        return section


def encoders() -> Registry[Any]:
    """The registry of encoders. Config may not depend on models, so it is imported when it is asked for."""
    registry: Registry[Any] = import_module("mlcl.models.encoders").ENCODERS
    return registry


def built_in() -> list[Any]:
    """The declarations of the built-in encoders, in the order of the job reference."""
    names = [name for name, origin in encoders().origins().items() if origin == BUILT_IN]
    return sorted((encoders()[name] for name in names), key=lambda encoder: (encoder.order, encoder.name))


def _read(value: Any, _: ValidatorFunctionWrapHandler) -> EncoderConfig:
    """The section as the class that its name names; errors are worded as pydantic words those of a union."""
    if isinstance(value, EncoderConfig):
        return value
    if not isinstance(value, Mapping):
        raise PydanticKnownError("model_attributes_type")
    if "name" not in value:
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "'name'"})
    section = EncoderConfig.of(value)
    if section is None:
        raise _unknown(str(value["name"]))
    return section.model_validate(value)


def _unknown(name: str) -> PydanticCustomError:
    tags = [f"'{encoder.name}'" for encoder in built_in()]
    tags += [f"'{each}' ({origin})" for each, origin in encoders().origins().items() if origin != BUILT_IN]
    near = nearest(name, encoders())
    context = {
        "tag": name,
        "expected_tags": ", ".join(tags),
        "hint": f"; did you mean {near}?" if near else "",
    }
    return PydanticCustomError(
        "union_tag_invalid",
        "Input tag '{tag}' found using 'name' does not match any of the expected tags: {expected_tags}{hint}",
        context,
    )


EncoderSection = Annotated[SerializeAsAny[EncoderConfig], WrapValidator(_read)]
