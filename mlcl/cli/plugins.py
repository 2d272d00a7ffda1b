"""`mlcl losses`, `metrics`, `encoders` and `baselines`: list all plugins, built in or from other packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mlcl.cli.options import Json
from mlcl.cli.output import answer, boxed_table, print_tree, results
from mlcl.config.reference import type_in_words
from mlcl.errors import UserError, escape_unprintable
from mlcl.plugins import PluginError, UnknownPluginError, registry

Name = Annotated[str | None, typer.Argument(help="Show this one in full.")]
LISTS = {
    "losses": "List the losses: what they do, the labels they read, their options.",
    "metrics": "List the metrics: what they are, the tasks that have them, which side is better.",
    "encoders": "List the encoders: what they read, their keys in a job, the packages they need.",
    "baselines": "List the baselines: what they are, and what they read of a data set.",
}
"""The help texts of the commands that list plugins, keyed by the kind of plugin."""


def listing_command(plural: str) -> Callable[..., None]:
    """Returns the command that lists the plugins of a kind, or shows one in full."""

    def command(name: Name = None, json: Json = False) -> None:
        show(plural, name, as_json=json)

    command.__doc__ = LISTS[plural]
    return command


def show(plural: str, name: str | None, *, as_json: bool) -> None:
    """Prints all plugins of a kind, or the one that is named. Raises UserError for an unknown name."""
    kind = registry(plural)

    def describe_plugin(plugin: str) -> dict[str, Any]:
        return {**_describe(plural, kind[plugin]), "from": kind.origins()[plugin]}

    if name is not None:
        try:
            print_tree({name: describe_plugin(name)}, as_json=as_json)
        except UnknownPluginError as error:
            raise UserError(f"{error}{error.hint}", key="NAME", found=name, allowed=error.allowed) from None
        return
    descriptions = dict[str, dict[str, Any]]()
    for plugin in kind:
        try:
            descriptions[plugin] = describe_plugin(plugin)
        except PluginError as error:  # the list also has plugins that cannot be used
            descriptions[plugin] = {"what": f"cannot be used: {error}", "from": kind.origins()[plugin]}
    columns = dict.fromkeys(column for description in descriptions.values() for column in description)
    rows = (
        [_format_cell(name), *(_format_cell(description.get(column)) for column in columns)]
        for name, description in descriptions.items()
    )
    answer(descriptions, boxed_table(("name", *columns), rows), as_json=as_json)


def options_table(title: str, section: type[BaseModel]) -> None:
    """Prints the keys of a section with their defaults and meanings."""
    rows = [
        (
            name,
            "" if option["default"] is None else str(option["default"]),
            option.get("what") or option["allowed"],
        )
        for name, option in _describe_keys(section, excluded="").items()
    ]
    results.print(boxed_table(("key", "default", "what"), rows, title, box=None))


def _describe(plural: str, plugin: Any) -> dict[str, Any]:
    if plural == "losses":
        options = {
            name: {"default": option.default, "allowed": str(option.allowed)}
            for name, option in plugin.options.items()
        }
        engine = "dense" if plugin.closed is None else "tiled"
        entry = {"what": plugin.summary, "labels": plugin.labels}
        return {**entry, "options": options, "engine": engine, "source": plugin.source, "year": plugin.year}
    if plural == "metrics":
        entry = {"what": plugin.summary, "group": plugin.group, "tasks": list(plugin.tasks)}
        return {**entry, "better": "lower" if plugin.mode == "min" else "higher", "source": plugin.source}
    if plural == "baselines":
        return {"what": plugin.title, "reads": ", ".join(plugin.reads) or "nothing"}
    if plural == "encoders":
        entry = {"what": plugin.title, "reads": plugin.modality or "text, image or vectors"}
        options = _describe_keys(plugin.section)
    else:
        entry, options = (
            {"what": plugin.title, "licence": plugin.licence},
            _describe_keys(plugin.options, excluded=""),
        )
    return {**entry, "options": options, "needs": list(plugin.packages)}


def _describe_keys(section: type[BaseModel], excluded: str = "name") -> dict[str, Any]:
    """Returns the keys of a section, except the key `excluded`, with their defaults, types and meanings."""
    return {
        field.alias or name: {
            "default": _default_value(field),
            "allowed": type_in_words(field.annotation).replace("`", ""),
            **({"what": field.description} if field.description else {}),
        }
        for name, field in section.model_fields.items()
        if name != excluded
    }


def _default_value(field: FieldInfo) -> Any:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return list(value) if isinstance(value, tuple) else value


def _format_cell(value: Any) -> str:
    return escape_unprintable(", ".join(value) if isinstance(value, (list, dict)) else str(value or ""))
