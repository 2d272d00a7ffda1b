"""A string of a file that names a plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
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
