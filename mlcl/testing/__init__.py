"""Suites of tests for authors of plugins, run by pytest; all built-in plugins pass them, too.

The modules `losses`, `encoders`, `metrics` and `sources` each have a class of tests. An author derives a
class from it that names the plugin to test and, for losses and metrics, adds a slow reference implementation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar

import pytest

from mlcl.plugins import Registry

ORIGIN = "a test"


@contextmanager
def register_plugins(registry: Registry[Any], modules: Sequence[str]) -> Iterator[None]:
    """Registers the plugins that `modules` (names) declare, and removes them when the context ends."""
    for module in modules:
        registry.add(import_module(module), ORIGIN)
    try:
        yield
    finally:
        registry.remove(ORIGIN)


class PluginTestCase:
    """The base class of all suites. In each test, `registry` has the plugins of the modules `modules`."""

    registry: ClassVar[Registry[Any]]
    modules: ClassVar[Sequence[str]] = ()

    @pytest.fixture(autouse=True)
    def _register_plugins(self) -> Iterator[None]:
        with register_plugins(self.registry, self.modules):
            yield

    def read_list(self, key: str) -> Sequence[Any]:
        """Returns the attribute `key`, a list of what to test.

        Raises CollectError for an empty list, whose tests pytest would skip, and for a single text.
        """
        values: Sequence[Any] = getattr(self, key)
        if isinstance(values, str) or not values:
            name = f"{type(self).__name__}.{key}"
            raise pytest.Collector.CollectError(f"{name}; found: {values!r}; allowed: a list, not empty")
        return values
