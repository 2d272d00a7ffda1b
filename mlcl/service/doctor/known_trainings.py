"""The trainings of a sweep or table as logs and folders have them, without the ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mlcl.config.safe_yaml import load_yaml
from mlcl.errors import UserError
from mlcl.service.engine.nested_trials import FRESH
from mlcl.service.engine.trial_scores import SCORES, Scores
from mlcl.service.search.scoring import chosen_settings
from mlcl.tracking import State
from mlcl.tracking.jsonl import decode, read_lines
from mlcl.tracking.log import LOG, TEXTS
from mlcl.tracking.names import SCORE, Tag
from mlcl.training.files import JOB, RESULT


@dataclass
class Known:
    """One training or confirmed setting: its log is what MLflow has of it.

    `folder` is where it was trained, and need not exist.
    """

    start: Mapping[str, Any]
    folder: Path
    texts: Path
    state: State = State.RUNNING
    reason: str = ""
    score: float | None = None
    scope: str = ""
    result: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_group(self) -> bool:
        """Whether it is a confirmed setting, whose log holds those of its seeds."""
        return bool(self.start["name"].endswith(FRESH))

    @property
    def is_cell(self) -> bool:
        """Whether it is a table's run, whose figures are in its own folder alone."""
        return bool(self.start["tags"].get(Tag.KIND) == "cell")

    @property
    def name(self) -> str:
        """How the ledger calls it."""
        return str(self.start["tags"][Tag.CELL] if self.is_cell else self.start["name"].removesuffix(FRESH))

    @property
    def parent(self) -> str:
        """The key of the confirmed setting that it is a seed of, if it is one."""
        return str(self.start["parent"] or "").partition(".")[2]

    @property
    def sentence(self) -> str:
        """What is known of its end, for a finding."""
        called = self.start["name"] if self.is_group else self.name
        said = f"{called}: its log says {self.state}"
        return said if self.score is None else f"{said} with score {self.score!r}"

    def rungs(self) -> list[tuple[int, float]]:
        """The scores of its validations."""
        return _scores(self.folder)[0]

    @property
    def is_trial(self) -> bool:
        """Whether it is a search trial, whose draw is in the ledger alone."""
        return Tag.TRIAL in self.start["tags"]

    def opened(self, key: str, generation: int) -> dict[str, Any]:
        """The event that opened it, without its settings. Raises OSError or ValueError if it is lost."""
        if self.is_trial:
            raise ValueError(f"the draw of {self.start['name']} is in the ledger alone")
        event: dict[str, Any] = {
            "event": "group" if self.is_group else "open",
            "key": key,
            "label": self.name,
            "job": self._job(),
            "settings": {},
        }
        if not self.is_group:
            event |= {"generation": generation, "number": None, "group": self.parent or None}
            event |= {"params": {}, "system_attrs": {}}
        return event | ({"scope": self.scope} if self.scope else {})

    def _job(self) -> Any:
        text = (self.texts / self.start["texts"][JOB]).read_text(encoding="utf-8")
        try:
            return load_yaml(text)
        except yaml.YAMLError as error:
            raise ValueError(f"the job of {self.name}: {error}") from None

    def closed(self, key: str, job: Mapping[str, Any], free: Sequence[str]) -> dict[str, Any]:
        """The event that closed it; `free` are the post-hoc keys of its sweep."""
        rungs, values, metrics, chosen = self.rungs(), list[float](), dict[str, float](), dict[str, Any]()
        score = rungs[-1][1] if rungs and self.state is not State.COMPLETE else None
        if self.state is State.COMPLETE and not self.is_cell:
            score, metrics = self.score, dict(self.result)
            values, chosen = _scores(self.folder)[1], chosen_settings(free, job, metrics)
        end = {"state": self.state, "reason": self.reason, "score": score}
        return {"event": "close", "key": key, **end, "values": values, "metrics": metrics, "chosen": chosen}


def known_trainings(home: Path, folder: Path) -> dict[str, Known]:
    """All trainings and confirmed settings of one sweep or table by their keys."""
    found: dict[str, Known] = {}
    for path in sorted((home / "logs").glob(f"*/{LOG}")):
        start, *others = [decode(line) for line, _ in read_lines(path)] or [{}]
        if start.get("kind") != "start" or folder.name not in (start["owner"], start["parent"]):
            continue
        tags, cell = start["tags"], start["tags"].get(Tag.KIND) == "cell"
        key = start["owner"] if cell else tags.get(Tag.KEY)
        if key is None:
            continue  # that of the sweep or table
        place = home / "runs" / key if cell else folder / "trials" / key
        its = Known(start, place, path.parent / TEXTS, scope=tags.get(Tag.SCOPE, ""))
        for entry in others:
            if entry.get("kind") == "metrics" and SCORE in entry["values"]:
                its.score = float(entry["values"][SCORE])
            elif entry.get("kind") in ("finish", "reopen"):
                its.state = State(entry.get("state", State.RUNNING))
                its.reason = entry.get("reason", "")
        if (place / RESULT).is_file():
            its.result = json.loads((place / RESULT).read_text())
        found[key] = its
    return found


def _scores(folder: Path) -> tuple[list[tuple[int, float]], list[float]]:
    if not (folder / SCORES).exists():
        return [], []
    try:
        scores = Scores(folder)
    except UserError:
        return [], []
    return scores.rungs, scores.values or []
