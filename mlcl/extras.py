"""The extras of the package: the modules of each, and the line that says which extra to install."""

from __future__ import annotations

from importlib.util import find_spec

EXTRAS = {
    "train": (
        "faiss", "filelock", "huggingface_hub", "pandas", "PIL", "pyarrow", "pydantic", "pydantic_core",
        "safetensors", "scipy", "simple_icd_10_cm", "sklearn", "threadpoolctl", "tokenizers", "yaml",
    ),
    "sweep": (
        "cmaes", "jinja2", "markupsafe", "matplotlib", "mlflow", "optuna", "packaging", "psutil", "ray",
        "rich", "sqlalchemy", "typer",
    ),
    "service": ("boto3", "flask_wtf", "psycopg"),
    "images": ("torchvision",),
    "transformers": ("transformers",),
    "lora": ("peft",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
}  # fmt: skip
"""The modules that each extra of pyproject.toml adds to those of the extra in `INCLUDED`."""
INCLUDED = {
    "sweep": "train",
    "service": "sweep",
    "images": "train",
    "transformers": "train",
    "lora": "transformers",
    "onnx": "train",
}


def missing_extra(error: ImportError) -> str:
    """Returns what to install for a module that an import did not find; empty if no extra has the module.

    Example:
        >>> missing_extra(ModuleNotFoundError("No module named 'ray'", name="ray"))
        "needs the package ray: pip install 'mlcl[sweep]'"
    """
    module = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or (module and find_spec(module) is not None):
        return ""
    extra = next((name for name, modules in EXTRAS.items() if module in modules), "")
    return _install_hint(module, extra) if extra else ""


def missing_modules(extra: str) -> str:
    """Returns what to install if a module of an extra is missing; empty if none is."""
    names: list[str] = []
    part: str | None = extra
    while part is not None:
        names += EXTRAS[part]
        part = INCLUDED.get(part)
    module = next((name for name in names if find_spec(name) is None), "")
    return _install_hint(module, extra) if module else ""


def _install_hint(module: str, extra: str) -> str:
    return f"needs the package {module}: pip install 'mlcl[{extra}]'"
