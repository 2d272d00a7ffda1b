"""Finds the folder of a pretrained model: a given one, one in a Python package, or one from the hub."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from mlcl.errors import UserError

PACKAGE = "package:"
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""The files that are downloaded: configuration, weights and tokenizer, neither pickled files nor code."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", ".model")
"""Endings of file names; a model folder with a tokenizer has at least one such file."""


def model_folder(model: str | Path) -> Path:
    """Returns the folder of a model, which contains config.json, safetensors and a tokenizer.

    Args:
        model: A folder; `package:NAME` for the only folder with such files in an installed Python package,
            which is not imported; or a name on the hub, which is downloaded into the local cache.

    Raises:
        UserError: There is no such model, its weights are pickled, its folder has an adapter, or it has no
            tokenizer.
    """
    name = str(model)
    if name.startswith(PACKAGE):
        folder = _package_folder(name.removeprefix(PACKAGE))
    elif Path(name).is_absolute() or name.startswith((".", "~")) or Path(name).is_dir():
        folder = Path(name).expanduser()
    else:
        folder = _hub_folder(name)
    _check_files(folder)
    return folder


def _package_folder(package: str) -> Path:
    try:
        if not package:
            raise ValueError("no name")  # Python 3.10 would take any package
        files = metadata.files(package) or []
    except (metadata.PackageNotFoundError, ValueError) as error:
        raise UserError(
            "this Python package is not installed", key="encoder.model", found=PACKAGE + package
        ) from error
    configs = {file.parent: file for file in files if file.name == "config.json"}
    folders = sorted({file.parent for file in files if file.suffix == ".safetensors"} & configs.keys())
    if len(folders) != 1:
        raise UserError(
            "not exactly one model in this Python package",
            key="encoder.model",
            found=[str(folder) for folder in folders] or PACKAGE + package,
            allowed="one folder with config.json and safetensors",
        )
    return Path(str(configs[folders[0]].locate())).parent


def _hub_folder(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise UserError(
            "names on the hub need the package transformers: pip install 'mlcl[transformers]'",
            key="encoder.model",
            found=name,
        ) from error
    try:
        # Below the top folder stand the same weights for other frameworks.
        return Path(snapshot_download(name, allow_patterns=list(HUB_FILES), ignore_patterns=["*/*"]))
    except Exception as error:  # errors of the network have no common type
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            "no such folder, and not to be had from the hub",
            key="encoder.model",
            found=f"{name} ({reason})",
            allowed="a folder, package:NAME or a name on the hub",
        ) from error


def _check_files(folder: Path) -> None:
    present = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if not folder.is_dir():
        problem = "no such folder"
    elif "config.json" not in present:
        problem = "not a Hugging Face model: no config.json"
    elif "adapter_config.json" in present:
        problem = "an adapter lies beside this model: merge it into the weights first"
    elif not any(name.endswith(".safetensors") for name in present):
        problem = "no weights"
        if any(name.endswith(PICKLES) for name in present):
            problem = "these weights are pickled, and reading them can run code: convert them to safetensors"
    elif not any(name.endswith(TOKENIZERS) for name in present):
        # transformers would make up one that knows no word.
        problem = "no tokenizer lies beside this model"
    else:
        return
    raise UserError(
        problem,
        key="encoder.model",
        found=folder,
        allowed="a folder with config.json, safetensors and a tokenizer",
    )
