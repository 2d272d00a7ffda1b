"""Finds the folder of a pretrained model: a given one, one in a Python package, at a URI, or from the hub."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from mlcl.errors import MachineError, UserError
from mlcl.models.model_storage import FILES, check_room, stored_model

PACKAGE = "package:"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", ".model")
"""Endings of file names; a model folder with a tokenizer has at least one such file."""


def model_folder(model: str | Path) -> Path:
    """Returns the folder of a model, which contains config.json, safetensors and a tokenizer.

    Args:
        model: A folder; `package:NAME` for the only folder with such files in an installed Python package,
            which is not imported; a URI such as `s3://BUCKET/FOLDER`, or a name on the hub, each of which is
            copied into this machine's cache.

    Raises:
        UserError: There is no such model, its weights are pickled, its folder has an adapter, or it has no
            tokenizer.
        MachineError: The cache's disk has no room for the model.
    """
    name = str(model)
    if name.startswith(PACKAGE):
        folder = _package_folder(name.removeprefix(PACKAGE))
    elif "://" in name:
        folder = stored_model(name)
    elif is_local(name):
        folder = Path(name).expanduser()
    else:
        folder = _hub_folder(name)
    _check_files(folder)
    return folder


def is_local(name: str) -> bool:
    """Whether the name of a model is the path of a folder, and not a name on the hub, a URI or a package."""
    return Path(name).is_absolute() or name.startswith((".", "~")) or Path(name).is_dir()


def _package_folder(package: str) -> Path:
    try:
        if not package:
            raise ValueError("no name")  # Python 3.10 would accept an empty name
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
    # Subfolders have the same weights for other frameworks.
    patterns = {"allow_patterns": list(FILES), "ignore_patterns": ["*/*"]}
    try:
        _check_room_for(name, patterns)
        return Path(snapshot_download(name, **patterns))  # one process of a machine downloads at a time
    except MachineError:
        raise
    except Exception as error:  # errors of the network have no common type
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            "no such folder, and not available from the hub",
            key="encoder.model",
            found=f"{name} ({reason})",
            allowed="a folder, a URI, package:NAME or a name on the hub",
        ) from error


def _check_room_for(name: str, patterns: Mapping[str, list[str]]) -> None:
    """Raises MachineError if the hub's cache has no room for a model, unless it has its config.json."""
    from huggingface_hub import HfApi, constants, try_to_load_from_cache
    from huggingface_hub.utils import filter_repo_objects

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    try:
        siblings = HfApi().model_info(name, files_metadata=True).siblings or ()
    except Exception:  # the download gives a better message
        return
    sizes = {sibling.rfilename: sibling.size or 0 for sibling in siblings}
    size = sum(sizes[file] for file in filter_repo_objects(list(sizes), **patterns))
    check_room(Path(constants.HF_HUB_CACHE), size, name)


def _check_files(folder: Path) -> None:
    names = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    if not folder.is_dir():
        problem = "no such folder"
    elif "config.json" not in names:
        problem = "not a Hugging Face model: no config.json"
    elif "adapter_config.json" in names:
        problem = "an adapter lies beside this model: merge it into the weights first"
    elif not any(name.endswith(".safetensors") for name in names):
        problem = "no weights"
        if any(name.endswith(PICKLES) for name in names):
            problem = "these weights are pickled, and reading them can run code: convert them to safetensors"
    elif not any(name.endswith(TOKENIZERS) for name in names):
        # transformers would create a tokenizer that knows no word.
        problem = "no tokenizer lies beside this model"
    else:
        return
    raise UserError(
        problem,
        key="encoder.model",
        found=folder,
        allowed="a folder with config.json, safetensors and a tokenizer",
    )
