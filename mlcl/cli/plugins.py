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
from mlcl.errors import UserError, printable
from mlcl.plugins import PluginError, UnknownPluginError, registry

Name = Annotated[str | None, typer.Argument(help="Show this one in full.")]
LISTS = {
    "losses": "List the losses: what they do, the labels they read, their options.",
    "metrics": "List the metrics: what they are, the tasks that have them, which side is better.",
    "encoders": "List the encoders: what they read, their keys in a job, the packages they need.",
    "baselines": "List the baselines: what they are, and what they read of a data set.",
}
"""The help texts of the commands that list plugins, keyed by the kind of plugin."""


def listing(plural: str) -> Callable[..., None]:
    """Returns the command that lists the plugins of a kind, or shows one in full."""

    def command(name: Name = None, json: Json = False) -> None:
        show(plural, name, as_json=json)

    command.__doc__ = LISTS[plural]
    return command


def show(plural: str, name: str | None, *, as_json: bool) -> None:
    """Prints all plugins of a kind, or the one that is named. Raises UserError for an unknown name."""
    kind = registry(plural)

    def described(each: str) -> dict[str, Any]:
        return {**_described(plural, kind[each]), "from": kind.origins()[each]}

    if name is not None:
        try:
            print_tree({name: described(name)}, as_json=as_json)
        except UnknownPluginError as error:
            raise UserError(f"{error}{error.hint}", key="NAME", found=name, allowed=error.allowed) from None
        return
    listed = dict[str, dict[str, Any]]()
    for each in kind:
        try:
            listed[each] = described(each)
        except PluginError as error:  # the list also has plugins that cannot be used
            listed[each] = {"what": f"cannot be used: {error}", "from": kind.origins()[each]}
    columns = dict.fromkeys(column for its in listed.values() for column in its)
    rows = ([_cell(name), *(_cell(its.get(column)) for column in columns)] for name, its in listed.items())
    answer(listed, boxed_table(("name", *columns), rows), as_json=as_json)


def options_table(title: str, section: type[BaseModel]) -> None:
    """Prints the keys of a section with their defaults and meanings."""
    rows = [
        (name, "" if its["default"] is None else str(its["default"]), its.get("what") or its["allowed"])
        for name, its in _keys(section, but="").items()
    ]
    results.print(boxed_table(("key", "default", "what"), rows, title, box=None))


def _described(plural: str, its: Any) -> dict[str, Any]:
    if plural == "losses":
        options = {
            name: {"default": option.default, "allowed": str(option.allowed)}
            for name, option in its.options.items()
        }
        engine = "dense" if its.closed is None else "tiled"
        about = {"what": its.summary, "labels": its.labels}
        return {**about, "options": options, "engine": engine, "source": its.source, "year": its.year}
    if plural == "metrics":
        about = {"what": its.summary, "group": its.group, "tasks": list(its.tasks)}
        return {**about, "better": "lower" if its.mode == "min" else "higher", "source": its.source}
    if plural == "baselines":
        return {"what": its.title, "reads": ", ".join(its.reads) or "nothing"}
    if plural == "encoders":
        about = {"what": its.title, "reads": its.modality or "text, image or vectors"}
        options = _keys(its.section)
    else:
        about, options = {"what": its.title, "licence": its.licence}, _keys(its.options, but="")
    return {**about, "options": options, "needs": list(its.packages)}


def _keys(section: type[BaseModel], but: str = "name") -> dict[str, Any]:
    """Returns the keys of a section, except the key `but`, with their defaults, types and meanings."""
    return {
        field.alias or name: {
            "default": _default(field),
            "allowed": type_in_words(field.annotation).replace("`", ""),
            **({"what": field.description} if field.description else {}),
        }
        for name, field in section.model_fields.items()
        if name != but
    }


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return list(value) if isinstance(value, tuple) else value


def _cell(value: Any) -> str:
    return printable(", ".join(value) if isinstance(value, (list, dict)) else str(value or ""))
