"""Plugins of modules that no installed package declares, registered for the time of a test."""

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
    """While inside, the registry has the plugins of these modules."""
    for module in modules:
        registry.add(import_module(module), ORIGIN)
    try:
        yield
    finally:
        registry.remove(ORIGIN)


class PluginTestCase:
    """What all suites have: `registry` has the plugins that `modules` declare, during each test."""

    registry: ClassVar[Registry[Any]]
    modules: ClassVar[Sequence[str]] = ()

    @pytest.fixture(autouse=True)
    def _registered(self) -> Iterator[None]:
        with registered(self.registry, self.modules):
            yield
