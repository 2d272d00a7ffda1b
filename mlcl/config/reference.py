"""Prints the job reference, which is generated from the schema: `python -m mlcl.config.reference`."""

from __future__ import annotations

import sys
import types
import typing
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from mlcl.config import encoder_section, job
from mlcl.config.schema import is_model, members_of, models_of
from mlcl.config.section import PluginName
from mlcl.config.space.search import SearchConfig

HEADER = """# Job reference

Written from the schema by `make docs`. A line is a key (type; default): meaning. An optional key is null by
default. The command line sets any key as `key.path=value`. An unknown key is an error that names the nearest.

With `base` a job file says only how it differs from another one:

```yaml
base: icd10cm_mlcl.yaml              # relative to this file; a base may have a base
drop: [objective.heads.chapter]      # left out of the base
experiment: sections-alone
train: {batch_size: 128}             # the other keys of `train` are the base's
encoder: {kernel_sizes: [1, 2, 3]}   # a list replaces the base's list
```

To change a section whose keys depend on its name, such as `encoder`, drop it and write it anew. `null` is a
value as any other. The resolved job is hashed and logged; `mlcl run JOB --print-config` prints it with file
and line of each value.
"""


def reference() -> str:
    """Returns the reference as Markdown: a heading for each section of a file, and a line for each key."""
    parts = [HEADER, *(_format_section(model) for model in models_of(job.JobConfig, []))]
    parts.append("# Space reference\n\n" + SPACE_KEYS)
    parts.append(_format_section(SearchConfig))
    return "\n".join(parts)


SPACE_KEYS = """A space file has `space`, which maps keys of the job to [what may vary](spaces.md#kinds), and
`search`.
"""


def _format_section(model: type[BaseModel]) -> str:
    description = (model.__doc__ or "").strip()
    keys = "\n".join(_format_key(field.alias or name, field) for name, field in model.model_fields.items())
    return f"## {model.__name__.removesuffix('Config')}\n\n{description}\n\n{keys}\n"


def _format_key(name: str, field: FieldInfo) -> str:
    names = [name for check in field.metadata if isinstance(check, PluginName) for name in check.built_in()]
    kind = ", ".join(f"`{plugin}`" for plugin in names) or type_in_words(field.annotation)
    default = _format_default(field)
    if default == "null":
        kind, default = kind.removesuffix(" or null"), "optional"
    meaning = f": {field.description}" if field.description else ""
    return f"- `{name}` ({kind}; {default}){meaning}"


def type_in_words(annotation: Any) -> str:
    """Returns the type of a key as text for the job reference, such as `list of int`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_in_words(arguments[0])
    if origin in (typing.Union, types.UnionType) or annotation is encoder_section.EncoderConfig:
        return " or ".join(dict.fromkeys(map(type_in_words, arguments or members_of(annotation))))
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is dict:
        return f"mapping of {type_in_words(arguments[1])}"
    if origin is tuple:
        return f"list of {type_in_words(arguments[0])}"
    if annotation is type(None):
        return "null"
    if is_model(annotation):
        return str(annotation.__name__).removesuffix("Config")
    return getattr(annotation, "__name__", "any")


def _format_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default if field.default is not PydanticUndefined else {}
    if isinstance(value, BaseModel):
        return "its defaults"
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, list) and len(value) > 8:
        return f"{value[0]} ... {value[-1]} ({len(value)} values)"
    return "null" if value is None else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
