"""`mlcl losses` and its like: every plugin that can be used, built in or from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.markup import escape
from rich.table import Table

from mlcl.cli.options import Json
from mlcl.cli.output import print_json, print_tree, results
from mlcl.config.reference import type_in_words
from mlcl.errors import UserError, printable
from mlcl.plugins import PluginError, Registry, UnknownPluginError, registry

Name = Annotated[str | None, typer.Argument(help="Show this one in full.")]


def losses(name: Name = None, json: Json = False) -> None:
    """List the losses: what they do, the labels they read, their options."""
    show("losses", name, as_json=json)


def metrics(name: Name = None, json: Json = False) -> None:
    """List the metrics: what they are, the tasks that have them, which side is better."""
    show("metrics", name, as_json=json)


def encoders(name: Name = None, json: Json = False) -> None:
    """List the encoders: what they read, their keys in a job, the packages they need."""
    show("encoders", name, as_json=json)


def baselines(name: Name = None, json: Json = False) -> None:
    """List the baselines: what they are, and what they read of a data set."""
    show("baselines", name, as_json=json)


def show(plural: str, name: str | None, *, as_json: bool) -> None:
    """Prints all plugins of a kind, or the one that is named. Raises UserError for an unknown name."""
    kind = registry(plural)
    if name is not None:
        print_tree({name: _found(kind, plural, name)}, as_json=as_json)
        return
    listed = {each: _listed(kind, plural, each) for each in kind}
    if as_json:
        print_json(listed)
        return
    columns = {"name": None, **{column: None for its in listed.values() for column in its}}
    table = Table(*columns)
    for each, its in listed.items():
        cells = [_cell(its.get(column)) for column in list(columns)[1:]]
        table.add_row(escape(printable(each)), *cells)
    results.print(table)


def options_table(title: str, section: type[BaseModel]) -> None:
    """Prints the keys of a section with their defaults and meanings."""
    table = Table("key", "default", "what", title=title, title_justify="left", box=None)
    for name, its in _keys(section, but="").items():
        default = "" if its["default"] is None else str(its["default"])
        what = its.get("what") or its["allowed"]
        table.add_row(name, escape(default), escape(what))
    results.print(table)


def _found(kind: Registry[Any], plural: str, name: str) -> dict[str, Any]:
    try:
        return _described(kind, plural, name)
    except UnknownPluginError as error:
        raise UserError(f"{error}{error.hint}", key="NAME", found=name, allowed=error.allowed) from None


def _listed(kind: Registry[Any], plural: str, name: str) -> dict[str, Any]:
    """A plugin that cannot be used is listed with what is wrong: it must not hide the others."""
    try:
        return _described(kind, plural, name)
    except PluginError as error:
        return {"what": f"cannot be used: {error}", "from": kind.origins()[name]}


def _described(kind: Registry[Any], plural: str, name: str) -> dict[str, Any]:
    return {**_DESCRIPTIONS[plural](kind[name]), "from": kind.origins()[name]}


def _loss(spec: Any) -> dict[str, Any]:

    options = {
        name: {"default": option.default, "allowed": str(option.allowed)}
        for name, option in spec.options.items()
    }
    return {
        "what": spec.summary,
        "labels": spec.labels,
        "options": options,
        "engine": "dense" if spec.closed is None else "tiled",
        "source": spec.source,
    }


def _metric(metric: Any) -> dict[str, Any]:
    return {
        "what": metric.summary,
        "group": metric.group,
        "tasks": list(metric.tasks),
        "better": "lower" if metric.mode == "min" else "higher",
        "source": metric.source,
    }


def _encoder(encoder: Any) -> dict[str, Any]:
    return {
        "what": encoder.title,
        "reads": encoder.modality or "text, image or vectors",
        "options": _keys(encoder.section),
        "needs": list(encoder.packages),
    }


def _source(source: Any) -> dict[str, Any]:
    return {
        "what": source.title,
        "licence": source.licence,
        "options": _keys(source.options, but=""),
        "needs": list(source.packages),
    }


def _baseline(baseline: Any) -> dict[str, Any]:
    return {"what": baseline.title, "reads": baseline.reads}


_DESCRIPTIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "losses": _loss,
    "metrics": _metric,
    "baselines": _baseline,
    "encoders": _encoder,
    "sources": _source,
}


def _keys(section: type[BaseModel], but: str = "name") -> dict[str, Any]:
    """The keys of a section of a job, but for the one that names the plugin."""
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
    text = ", ".join(value) if isinstance(value, (list, dict)) else str(value or "")
    return escape(printable(text))
