"""Whether a ledger's line about a space is true, where its checksum cannot tell, by the other stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from optuna.trial import FrozenTrial

from mlcl.config import load_job, load_space
from mlcl.config.safe_yaml import load_yaml
from mlcl.errors import UserError
from mlcl.service.search.space_versions import space_hash
from mlcl.tracking.jsonl import decode, read_lines
from mlcl.tracking.log import LOG, TEXTS, log_folder
from mlcl.tracking.names import space_file
from mlcl.training.files import JOB


def is_confirmed(home: Path, id: str, event: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> bool:
    """Whether the log of the sweep `id` has this space, and its study (`trials`) the earlier trials it kept.

    No log has the spaces of a table's tuned cells: theirs are never confirmed. Raises KeyError for a line
    without what a space has.
    """
    taken = {trial.user_attrs["from"]: trial.number for trial in trials if "from" in trial.user_attrs}
    texts = _texts(log_folder(home, id))
    if event["kept"] != taken or texts.get(space_file(event["number"])) != event["space"]:
        return False
    try:
        space = load_space(JOB, load_job(load_yaml(texts[JOB])), load_yaml(event["space"]))
    except (UserError, KeyError, yaml.YAMLError):
        return False
    names = [parameter.name for parameter in space.parameters]
    return (event["names"], event["space_hash"]) == (names, space_hash(space, event["warm"]))


def _texts(log: Path) -> dict[str, str]:
    """The text artifacts of a log by their names, the last of each."""
    files: dict[str, str] = {}
    for entry in (decode(line) for line, _ in read_lines(log / LOG)):
        files |= entry.get("texts", {})
        if entry.get("kind") == "text":
            files[entry["name"]] = entry["file"]
    return {
        name: (log / TEXTS / file).read_text(encoding="utf-8")
        for name, file in files.items()
        if (log / TEXTS / file).is_file()
    }
