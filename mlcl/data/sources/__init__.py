"""The data sources: each module here declares one, or a few of a kind, as values of `Source`."""

from __future__ import annotations

from typing import Any

from mlcl.data.source import Source
from mlcl.errors import UserError
from mlcl.plugins import PluginError, Registry, UnknownPluginError

SOURCES: Registry[Source[Any]] = Registry("source", "mlcl.sources", "mlcl.data.sources", Source)


def find_source(name: str) -> Source[Any]:
    """A source by name. Raises UserError that names the nearest for an unknown one."""
    try:
        return SOURCES[name]
    except UnknownPluginError as error:
        raise UserError(
            f"unknown source{error.hint}", key="data.source", found=name, allowed=sorted(error.allowed)
        ) from None
    except PluginError as error:
        raise UserError(str(error), key="data.source", found=name) from None
