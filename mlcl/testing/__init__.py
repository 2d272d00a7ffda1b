"""Suites of tests for authors of plugins, run by pytest; every built-in plugin passes them too.

`losses`, `encoders`, `metrics` and `sources` each have a class of tests. An author inherits it, says which
plugin to test, and for losses and metrics writes the plugin once more, slowly.
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
def registered(registry: Registry[Any], modules: Sequence[str]) -> Iterator[None]:
    """Registers the plugins that these modules declare, and removes them at the end."""
    for module in modules:
        registry.add(import_module(module), ORIGIN)
    try:
        yield
    finally:
        registry.remove(ORIGIN)


class PluginTestCase:
    """The base of all suites: during each test `registry` has the plugins that `modules` declare.

    `modules` are needed for plugins that no installed package declares.
    """

    registry: ClassVar[Registry[Any]]
    modules: ClassVar[Sequence[str]] = ()

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        with registered(self.registry, self.modules):
            yield
