"""A digest of a Python object: of its values, its tensors, and the code of its classes and functions.

The digest is not that of a pickle, since the pickle of a class in a notebook differs each time. Code of
installed packages counts only by its name. Code that a caller may edit counts by its instructions and by the
functions that it calls.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from inspect import getclosurevars
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType

import torch
from torch import Tensor, nn

Code = type | FunctionType | ModuleType
ALWAYS = ("mlcl", "torch", "numpy", "builtins")
"""Packages that are installed wherever mlcl is."""
INSTALLED = {"site-packages", "dist-packages"}
"""Names of the folders that hold installed packages."""
PLAIN = (
    str, bytes, int, float, complex, bool, type(None), type(...), torch.dtype, torch.device, torch.Size, Path,
)  # fmt: skip
OF_CLASS = ("__dict__", "__weakref__", "__doc__", "__firstlineno__", "__module__", "__static_attributes__")
"""Members of a class that do not affect what the class does."""


@dataclass(frozen=True)
class Identity:
    """The identity of an object, with the classes, functions and modules of its code.

    `digest` is a SHA-256 that is equal for equal objects in any process of the same Python version.
    """

    digest: str
    code: tuple[Code, ...]

    @property
    def packages(self) -> list[str]:
        """The names of the packages of the code, except those in `ALWAYS` and the standard library."""
        names = {
            str(_module_name(code)).partition(".")[0] for code in self.code if is_imported(_module_name(code))
        }
        return sorted(names - {*sys.stdlib_module_names, *ALWAYS})

    @property
    def own_code(self) -> list[Code]:
        """The classes, functions and modules that are not from an installed package."""
        return [code for code in self.code if not is_imported(_module_name(code))]


def identity_of(value: Any) -> Identity:
    """Returns the identity of an object. An object that cannot be hashed may raise any error."""
    digest, objects = hashlib.sha256(), dict[int, Any]()
    for part in _parts(value, objects):
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    code = tuple(item for item in objects.values() if isinstance(item, Code))
    return Identity(digest.hexdigest(), code)


def is_imported(name: str | None) -> bool:
    """Whether a module belongs to an installed package, also to one that is installed as editable."""
    return is_installed(name) or _is_distribution((name or "").partition(".")[0])


@cache
def _is_distribution(name: str) -> bool:
    try:
        return bool(distribution(name))
    except (PackageNotFoundError, ValueError):
        return False


def _module_name(code: Code) -> str | None:
    name: str | None = code.__name__ if isinstance(code, ModuleType) else code.__module__
    return name


def is_installed(name: str | None) -> bool:
    """Whether a module is of the standard library or mlcl, or lies in a folder of installed packages."""
    top = (name or "__main__").partition(".")[0]
    if top == "__main__":
        return False
    if top in sys.stdlib_module_names or top in ("builtins", "mlcl"):
        return True
    file = getattr(sys.modules.get(name or ""), "__file__", None)
    return file is not None and bool(INSTALLED & set(Path(file).parts))


def _parts(value: Any, objects: dict[int, Any]) -> Iterator[str | bytes]:
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if not isinstance(value, (tuple, frozenset, CodeType)):  # equal values may or may not be one object
        if id(value) in objects:
            yield f"as {list(objects).index(id(value))}"
            return
        objects[id(value)] = value  # keeps the object, so that no other takes its id
    if isinstance(value, Tensor):
        yield f"tensor {value.dtype} {tuple(value.shape)} {value.requires_grad}"
        yield value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
        yield from (f"array {value.dtype} {value.shape}", value.tobytes())
    elif isinstance(value, Mapping):
        yield "mapping"
        for key, item in value.items():
            yield from _parts(key, objects)
            yield from _parts(item, objects)
    elif isinstance(value, (set, frozenset)):
        yield from ("set", *sorted(map(repr, value)))
    elif isinstance(value, (list, tuple)):
        yield f"{type(value).__name__} {len(value)}"
        for item in value:
            yield from _parts(item, objects)
    else:
        yield from _parts_of_code(value, objects)


def _parts_of_code(value: Any, objects: dict[int, Any]) -> Iterator[str | bytes]:
    name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, (type, FunctionType)) and is_installed(value.__module__):
        yield name
    elif isinstance(value, type):
        yield f"class {name}"
        yield from _parts(value.__bases__, objects)
        yield from _parts({key: item for key, item in vars(value).items() if key not in OF_CLASS}, objects)
    elif isinstance(value, FunctionType):
        yield f"function {value.__qualname__}"
        yield from _parts((value.__defaults__, value.__kwdefaults__, value.__code__), objects)
        yield from _parts(getclosurevars(value).nonlocals, objects)
        yield from _parts({key: value.__globals__.get(key) for key in _global_names(value.__code__)}, objects)
    elif isinstance(value, CodeType):
        yield value.co_code
        yield from _parts((value.co_names, value.co_varnames, value.co_consts), objects)
    elif isinstance(value, ModuleType):
        yield f"module {value.__name__}"
        if not is_installed(value.__name__) and getattr(value, "__file__", None) is not None:
            yield Path(str(value.__file__)).read_bytes()
            kinds = (*PLAIN, ModuleType, FunctionType, type)
            members = {key: item for key, item in vars(value).items() if not key.startswith("__")}
            yield from _parts(
                {key: item for key, item in members.items() if isinstance(item, kinds)}, objects
            )
    elif isinstance(value, BuiltinFunctionType):
        yield f"builtin {value.__name__}"
    elif isinstance(value, ReferenceType):
        yield from _parts(value(), objects)
    elif isinstance(value, MethodType):
        yield from _parts((value.__func__, value.__self__), objects)
    elif isinstance(value, (property, classmethod, staticmethod)):
        yield from _parts([getattr(value, key, None) for key in ("fget", "fset", "__func__")], objects)
    elif isinstance(value, partial):
        yield from _parts((value.func, value.args, value.keywords), objects)
    else:
        yield f"object {name}"
        yield from _parts(type(value), objects)
        yield from _parts(_object_state(value), objects)


def _object_state(value: Any) -> Any:
    """Returns the attributes of an object; if it has no `__dict__`, the state that a pickle would have."""
    if isinstance(value, nn.Module) or hasattr(value, "__dict__"):
        return {key: item for key, item in vars(value).items() if key != "training"}
    return [list(item) if isinstance(item, Iterator) else item for item in value.__reduce_ex__(4)[1:]]


def _global_names(code: CodeType) -> list[str]:
    """Returns the names of the global variables that the code and its nested functions read."""
    names = [
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname == "LOAD_GLOBAL"
    ]
    bodies = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return list(dict.fromkeys([*names, *(name for body in bodies for name in _global_names(body))]))
