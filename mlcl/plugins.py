"""Registries of plugins by name. A plugin is declared once, by a value at the top of a module.

A plugin is a loss, an encoder, a data source, a metric or a baseline: an instance of the class of its kind.
Plugins come from three places:

- built in: modules of the kind's package;
- installed packages: entry points of the kind's group, with the plugin's name;
- files that a job names: see `Registry.add`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Protocol, TypeVar

from mlcl.errors import UserError, did_you_mean


class Named(Protocol):
    """A plugin of any kind."""

    @property
    def name(self) -> str:
        """The name of the plugin in a job."""
        ...


P = TypeVar("P", bound=Named)

BUILT_IN = "built in"
REGISTRIES = {
    "losses": ("mlcl.losses", "LOSSES"),
    "encoders": ("mlcl.models.encoders", "ENCODERS"),
    "sources": ("mlcl.data.sources", "SOURCES"),
    "metrics": ("mlcl.evaluation", "METRICS"),
    "baselines": ("mlcl.training.baselines", "BASELINES"),
}
"""Maps each kind of plugin to the module and the variable of its registry, which `registry` imports."""


class UnknownPluginError(KeyError):
    """Raised if no plugin has a name. `known` maps names to origins, `hint` suggests the nearest name."""

    def __init__(self, kind: str, name: str, known: Mapping[str, str]) -> None:
        self.kind, self.name, self.known = kind, name, dict(known)
        self.hint = did_you_mean(str(name), known)
        super().__init__(f"unknown {kind} {name!r}")

    def __str__(self) -> str:
        # KeyError shows its text in quotes.
        return str(self.args[0])

    @property
    def allowed(self) -> list[str]:
        """All names; a name that is not built in is followed by its origin."""
        items = sorted(self.known.items())
        return [name if origin == BUILT_IN else f"{name} ({origin})" for name, origin in items]


class PluginError(UserError):
    """Raised if a plugin that is not built in cannot be used. The text names its origin and the fault."""


class Registry(Mapping[str, P]):
    """The plugins of one kind, by name. A module is imported when one of its plugins is asked for.

    `kind` is the word in messages, `group` the group of entry points, `folder` the package with the modules
    of built-in plugins, and `type_` the class of the plugins.

    Example:
        >>> from mlcl.losses import LOSSES
        >>> LOSSES["supcon"].labels
        'class'
    """

    def __init__(self, kind: str, group: str, folder: str, type_: type[P]) -> None:
        self.kind, self.group = kind, group
        self._folder, self._type = folder, type_
        self._loaded_plugins: dict[str, P] = {}
        self._origins: dict[str, str] = {}
        self._scanned_modules: set[str] = set()
        self._known_origins: dict[str, str] | None = None

    def __getitem__(self, name: str) -> P:
        """Returns the plugin `name`. Raises UnknownPluginError, which is a KeyError, or PluginError."""
        if name not in self._loaded_plugins:
            self._import_plugin(name)
        if name not in self._loaded_plugins:
            raise UnknownPluginError(self.kind, name, self.origins())
        return self._loaded_plugins[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._loaded_plugins or name in self.origins())

    def __iter__(self) -> Iterator[str]:
        return iter(self.origins())

    def __len__(self) -> int:
        return len(self.origins())

    def origins(self) -> dict[str, str]:
        """Returns the origin of each plugin, by name: built-in plugins first, both groups sorted by name."""
        if self._known_origins is None:
            for module in self._modules:
                self._scan_module(module)
            origins = dict(self._origins)
            for name, point in self._entry_points.items():
                origins.setdefault(name, _distribution(point))
            self._known_origins = dict(
                sorted(origins.items(), key=lambda item: (item[1] != BUILT_IN, item[0]))
            )
        return dict(self._known_origins)

    def add(self, module: ModuleType, origin: str) -> list[str]:
        """Registers the plugins of this kind that a module declares; adding a module again changes nothing.

        `origin` says in messages where the module comes from. Returns the names of the module's plugins,
        except those that the module imported from another origin. If a name is taken, registers none of them
        and raises PluginError.
        """
        plugins = self._collect_plugins(module)
        self._accept(plugins, origin)
        return [plugin.name for plugin in plugins if self._origins[plugin.name] == origin]

    def remove(self, origin: str) -> None:
        """Removes the plugins that were added with this origin."""
        for name in [name for name, plugin_origin in self._origins.items() if plugin_origin == origin]:
            del self._origins[name], self._loaded_plugins[name]
        self._known_origins = None

    def _import_plugin(self, name: str) -> None:
        """Imports and registers the plugin `name`, if there is one.

        It is looked for in the built-in module of this name, then in all built-in modules, and at last among
        the entry points.
        """
        if name in self._modules:
            self._scan_module(name)
        for module in self._modules if name not in self._loaded_plugins else ():
            self._scan_module(module)
        point = self._entry_points.get(name)
        if point is not None and name not in self._origins:
            self._load_entry_point(point)

    @cached_property
    def _modules(self) -> list[str]:
        package = import_module(self._folder)
        return sorted(module.name for module in pkgutil.iter_modules(package.__path__))

    def _scan_module(self, module: str) -> None:
        if module not in self._scanned_modules:
            for plugin in self._collect_plugins(import_module(f"{self._folder}.{module}")):
                self._register(plugin, BUILT_IN)
            self._scanned_modules.add(module)

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            points.setdefault(point.name, point)
        return points

    def _load_entry_point(self, point: EntryPoint) -> None:
        origin = _distribution(point)
        subject = f"{self.kind} {point.name} of {origin}"
        rivals = {_distribution(rival) for rival in entry_points(group=self.group, name=point.name)}
        if len(rivals) > 1:
            raise PluginError(f"{self.kind} {point.name} is declared by {' and '.join(sorted(rivals))}")
        try:
            value = point.load()
        except Exception as error:  # foreign code may raise anything
            raise PluginError(f"{subject}: {type(error).__name__}: {error}") from error
        plugins = self._collect_plugins(value) if isinstance(value, ModuleType) else [value]
        for plugin in plugins:
            if not isinstance(plugin, self._type):
                type_name = type(plugin).__name__
                raise PluginError(f"{subject}: found a {type_name}, allowed: a {self._type.__name__}")
        self._accept(plugins, origin)
        if point.name not in self._loaded_plugins:
            names = ", ".join(plugin.name for plugin in plugins) or "none"
            raise PluginError(f"{subject}: it declares {names}")

    def _collect_plugins(self, module: ModuleType) -> list[P]:
        plugins = {id(value): value for value in vars(module).values() if isinstance(value, self._type)}
        return list(plugins.values())

    def _accept(self, plugins: Sequence[P], origin: str) -> None:
        """Registers plugins that are not built in: all, or none if a name is taken (PluginError)."""
        origins = self.origins()
        new_plugins = [plugin for plugin in plugins if self._loaded_plugins.get(plugin.name) is not plugin]
        for plugin in new_plugins:
            if plugin.name in self._loaded_plugins or origins.get(plugin.name, origin) != origin:
                conflict = f"the name is taken by {origins[plugin.name]}"
                raise PluginError(f"{self.kind} {plugin.name} of {origin}: {conflict}")
        for plugin in new_plugins:
            self._register(plugin, origin)

    def _register(self, plugin: P, origin: str) -> None:
        registered = self._loaded_plugins.setdefault(plugin.name, plugin)
        if registered is not plugin:
            raise PluginError(f"{self.kind} {plugin.name} is declared twice by {origin}")
        self._origins.setdefault(plugin.name, origin)
        self._known_origins = None


_may_run_files = ContextVar("files_run", default=True)


@contextmanager
def only_reading() -> Iterator[None]:
    """A context in which this thread reads jobs without running their plugin files.

    Unknown names of plugins are accepted in the context. Other threads run plugin files as before.
    """
    token = _may_run_files.set(False)
    try:
        yield
    finally:
        _may_run_files.reset(token)


def files_are_run() -> bool:
    """Whether loading a job runs its plugin files, see `only_reading`."""
    return _may_run_files.get()


def registry(plural: str) -> Registry[Any]:
    """Returns the registry of "losses", "encoders", "sources", "metrics" or "baselines"."""
    module, name = REGISTRIES[plural]
    plugin_registry: Registry[Any] = getattr(import_module(module), name)
    return plugin_registry


def _distribution(point: EntryPoint) -> str:
    distribution = point.dist
    return point.value if distribution is None else f"{distribution.name} {distribution.version}"
