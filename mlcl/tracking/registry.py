"""Registers exported models in MLflow as versions of registered models, and sets aliases of versions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow.artifacts import download_artifacts
from mlflow.entities import LoggedModel
from mlflow.exceptions import MlflowException

from mlcl.config import covers
from mlcl.errors import UserError
from mlcl.tracking.mlflow_private import VERSIONS_TAG
from mlcl.tracking.tracker import Tracker
from mlcl.training.export import Index
from mlcl.training.export.card import describe
from mlcl.training.export.model_index import INDEX

URI = re.compile(r"models:/(?P<name>[^@/]+)(@(?P<alias>[^@/]+)|/(?P<version>\d+))")
ALIAS = re.compile(r"(?!(?i:latest|v\d+)$)[\w-]+")
MAX_DESCRIPTION = 5000
"""The length in characters to which a version's description is cut, for MLflow's store."""
BEST = "best"
"""The alias of the best model, moved to a new version unless the present one is at least as good."""
LONGEST = 60
"""The length in characters above which a version's tag has a digest of a job value instead of the value."""
NEUTRAL = ("tracking", "train.threads")
"""The job's sections and keys that do not matter when the jobs of two versions are compared."""


def check_name(name: str, alias: str) -> None:
    """Raises UserError for a model name or an alias that is not valid in MLflow or in a `models:/` URI."""
    if not name.strip() or set(name) & set("/:@"):
        raise UserError("no name of a model", key="--register", found=name, allowed="a name without / : @")
    if ALIAS.fullmatch(alias) is None:
        raise UserError(
            "no alias",
            key="--alias",
            found=alias,
            allowed="letters, digits, _ and -, but neither latest nor a version such as v1",
        )


def register_version(tracker: Tracker, model: LoggedModel, index: Index, name: str, details: str = "") -> str:
    """Returns the version of `name` for a logged model, created if needed; `details` end its description."""
    run_id, source = str(model.source_run_id), str(model.artifact_location)
    versions = tracker.versions(run_id, source)
    if name not in versions:
        tracker.make_model(name)
        tags = {"predictor": index.best, "metric": index.metric}
        text = f"{describe(index)}\n\n{details}"[:MAX_DESCRIPTION]
        created = tracker.client.create_model_version(
            name, source, run_id, tags=tags, description=text, model_id=model.model_id
        )
        versions[name] = str(created.version)
        # For the model's page: a server does this itself, a store that is a file does not.
        links = [{"name": model_name, "version": version} for model_name, version in versions.items()]
        tracker.client.set_logged_model_tags(model.model_id, {VERSIONS_TAG: json.dumps(links)})
    return versions[name]


def fetch_registered(tracker: Tracker, uri: str, folder: Path) -> Path:
    """Downloads the exported folder of `models:/NAME@ALIAS` or `models:/NAME/VERSION` below `folder`."""
    parts = URI.fullmatch(uri)
    if parts is None:
        raise UserError(
            "names no model", key="MODEL", found=uri, allowed="models:/NAME@ALIAS, models:/NAME/1"
        )
    client, name = tracker.client, parts["name"]
    try:
        if parts["alias"] is not None:
            version = client.get_model_version_by_alias(name, parts["alias"])
        else:
            version = client.get_model_version(name, parts["version"])
        download = Path(
            download_artifacts(f"{version.source}/artifacts", None, None, str(folder), tracker.uri)
        )
    except (MlflowException, OSError) as error:
        detail = f"{uri} ({tracker.reason(error)})"
        raise UserError("no such registered model", key="MODEL", found=detail) from None
    for file in download.glob(f"*/{INDEX}"):  # MLflow keeps the name of the folder that was exported
        return file.parent
    raise UserError("not an exported model", key="MODEL", found=uri, allowed=f"mlcl export {version.run_id}")


@dataclass(frozen=True)
class Score:
    """The score of a registered version, with its search's job (dotted keys) and the varied keys."""

    metric: str
    value: float
    mode: str
    job: Mapping[str, Any]
    searched: Sequence[str]

    def tags(self) -> dict[str, str]:
        """Returns the tags that record this score at a version."""
        job = {key: _shorten_value(value) for key, value in self.job.items() if not _is_covered(NEUTRAL, key)}
        return {
            "metric": self.metric,
            "score": repr(self.value),
            "job": json.dumps(job),
            "searched": json.dumps(list(self.searched)),
        }

    def difference(self, held_tags: Mapping[str, str]) -> str:
        """Returns why the score is not comparable with that of a version with `held_tags`; '' if it is."""
        if "job" not in held_tags:
            return "its job is not known"
        if held_tags["metric"] != self.metric:
            return f"its metric is {held_tags['metric']}"
        settings, other_settings = json.loads(self.tags()["job"]), json.loads(held_tags["job"])
        # The tags of an earlier mlcl may have keys that are neutral now.
        neutral_keys = (*NEUTRAL, *self.searched, *json.loads(held_tags["searched"]))
        keys = sorted(
            key
            for key in settings.keys() | other_settings.keys()
            if settings.get(key) != other_settings.get(key) and not _is_covered(neutral_keys, key)
        )
        if not keys:
            return ""
        first_key, n_more = keys[0], len(keys) - 1
        text = f"its {first_key} is {other_settings.get(first_key)}, here {settings.get(first_key)}"
        return f"{text}, and {n_more} more differ" if n_more else text

    def beats(self, held_tags: Mapping[str, str]) -> bool:
        """Whether the score is better than that of a version with the tags `held_tags`."""
        other_value = float(held_tags["score"])
        return self.value > other_value if self.mode == "max" else self.value < other_value


def move_best(tracker: Tracker, name: str, version: str, score: Score) -> str:
    """Tags a version with its score; moves the alias `best` to it unless the present best is as good.

    Two versions can be compared if they have the same metric and their jobs differ only in searched keys; if
    they cannot, the alias moves and the returned line says why.
    """
    client = tracker.client
    try:
        old_best = client.get_model_version_by_alias(name, BEST)
    except MlflowException:
        old_best = None
    for key, value in score.tags().items():
        client.set_model_version_tag(name, version, key, value)
    reason = ""
    if old_best is not None and str(old_best.version) != version:
        reason = score.difference(old_best.tags)
        if not reason and not score.beats(old_best.tags):
            return f"models:/{name}/{version} ({BEST} stays with version {old_best.version})"
        reason = f"; not compared with version {old_best.version}: {reason}" if reason else ""
    client.set_registered_model_alias(name, BEST, version)
    return f"models:/{name}@{BEST} (version {version}{reason})"


def _is_covered(sections: Sequence[str], key: str) -> bool:
    return any(covers(section, key) for section in sections)


def _shorten_value(value: Any) -> Any:
    text = json.dumps(value)
    return value if len(text) <= LONGEST else hashlib.sha256(text.encode()).hexdigest()[:16]
