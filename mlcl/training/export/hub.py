"""Sends the folder of an exported model to a repository of the Hugging Face Hub."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcl._version import __version__
from mlcl.errors import UserError
from mlcl.extras import missing_extra

KEY = "--push"
OWN = (
    "features/*", "ensemble/*", "datastore.parquet", "tokenizer*.json", "config.json", "model.onnx*",
    "config_sentence_transformers.json", "model.safetensors", "modules.json", "sentence_bert_config.json",
    "[1-9]_*/*",
)  # fmt: skip
"""Patterns of files that not every model has; a push deletes matching files that the new model lacks."""
REFUSED = {401: "the hub does not know this token", 403: "the token has no right to write there"}


def check_push(repo: str) -> None:
    """Raises UserError for an invalid name of a repository, without a token, or without huggingface_hub."""
    try:
        from huggingface_hub import get_token
        from huggingface_hub.utils import HFValidationError, validate_repo_id
    except ImportError as error:
        raise UserError(missing_extra(error) or str(error), key=KEY, found=repo) from None
    try:
        validate_repo_id(repo)
    except HFValidationError:
        raise UserError("not the name of a repository", key=KEY, found=repo, allowed="USER/NAME") from None
    if get_token() is None:
        raise UserError("no token for the hub", key=KEY, found=repo, allowed="HF_TOKEN, or `hf auth login`")


def push_folder(folder: Path, repo: str, *, public: bool = False) -> str:
    """Sends all files in one commit, and returns the repository's address; equal files make no commit.

    A repository that does not exist is created, as a private one unless `public`. Other files in the
    repository are kept unless they match `OWN`. Raises UserError if the repository is public and `public` is
    not set, there is no network or no right, or the hub refuses the files.
    """
    from huggingface_hub import HfApi

    api = HfApi(library_name="mlcl", library_version=__version__)
    with _convert_errors(repo):
        repo_url = api.create_repo(repo, private=not public, exist_ok=True)
        name, message = repo_url.repo_id, f"Model of mlcl {__version__}"
        if not public and not api.repo_info(name).private:
            problem = "is public, and a model has ids and embeddings of its training rows"
            raise UserError(problem, key=KEY, found=name, allowed="a private repository, or --public")
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=message, delete_patterns=list(OWN))
    return str(repo_url)


@contextmanager
def _convert_errors(repo: str) -> Iterator[None]:
    """Turns any error in the context into a UserError; progress bars and warnings are off meanwhile."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    silent = are_progress_bars_disabled()
    try:
        disable_progress_bars()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library warns of the Parquet file of a model
            yield
    except UserError:
        raise
    except HfHubHTTPError as error:
        status = error.response.status_code
        problem = REFUSED.get(status, "the hub does not take it")
        detail = error.server_message or f"status {status}"
        raise UserError(problem, key=KEY, found=f"{repo} ({detail})") from None
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError("cannot be sent to the hub", key=KEY, found=f"{repo} ({reason})") from None
    finally:
        if not silent:
            enable_progress_bars()
