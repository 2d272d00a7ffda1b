"""What is known of a sweep's or table's trainings without its ledger: from logs, studies, folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from optuna.trial import FrozenTrial

from mlcl.config.safe_yaml import load_yaml
from mlcl.service.engine.nested_trials import FRESH
from mlcl.service.search.scoring import chosen_settings
from mlcl.significance.baseline_verdict import figure_name
from mlcl.tracking import State
from mlcl.tracking.jsonl import decode, read_lines
from mlcl.tracking.log import LOG, TEXTS
from mlcl.tracking.names import SCORE, Tag
from mlcl.training.files import JOB, RESULT


@dataclass
class Known:
    """One training or confirmed setting: its log is what MLflow has of it, `trial` what Optuna has.

    `folder` is where it was trained, and need not exist.
    """

    start: Mapping[str, Any]
    folder: Path
    texts: Path
    trial: FrozenTrial | None = None
    state: State = State.RUNNING
    reason: str = ""
    score: float | None = None
    scope: str = ""
    result: Mapping[str, float] = field(default_factory=dict)
    logged: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """The metrics of its log by step."""

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
        said = f"{called}: its log says {self.state}" + (
            f" with score {self.score!r}" if self.score is not None else ""
        )
        if self.trial is not None:
            values = f" {self.trial.values}" if self.trial.values else ""
            said += f", Optuna says {self.trial.state.name}{values}"
        return said

    def rungs(self, job: Mapping[str, Any]) -> list[tuple[int, float]]:
        """The scores of its validations."""
        if self.trial is not None:
            return sorted(self.trial.intermediate_values.items())
        metric, last, found = job["evaluation"]["metric"], job["train"]["epochs"], {}
        for _, its in sorted(self.logged.items()):
            value = its.get(metric, its.get(f"knn/{metric}"))
            if value is not None and 0 < its["epoch"] < last:
                found[int(its["epoch"])] = value
        return list(found.items())

    def opened(self, key: str, generation: int) -> dict[str, Any]:
        """The event that opened it; a trial's has its settings. Raises OSError or ValueError if lost."""
        tags, trial = self.start["tags"], self.trial
        if Tag.TRIAL in tags and trial is None:
            raise ValueError(f"the settings of {self.start['name']} are in no study")
        event: dict[str, Any] = {
            "event": "group" if self.is_group else "open",
            "key": key,
            "label": self.name,
            "job": self._job(),
            "settings": dict(trial.user_attrs["settings"]) if trial is not None else {},
        }
        if not self.is_group:
            event |= {
                "generation": generation,
                "number": int(tags[Tag.TRIAL]) if Tag.TRIAL in tags else None,
                "study_number": None if trial is None else trial.number,
                "group": self.parent or None if trial is None else None,
            }
        return event | ({"scope": self.scope} if self.scope else {})

    def _job(self) -> Any:
        text = (self.texts / self.start["texts"][JOB]).read_text(encoding="utf-8")
        try:
            return load_yaml(text)
        except yaml.YAMLError as error:
            raise ValueError(f"the job of {self.name}: {error}") from None

    def closed(self, key: str, job: Mapping[str, Any], head: Mapping[str, Any]) -> dict[str, Any]:
        """The event that closed it; `head` is the first event of its sweep or table."""
        rungs, values, metrics, chosen = self.rungs(job), list[float](), dict[str, float](), dict[str, Any]()
        score = rungs[-1][1] if rungs and self.state is not State.COMPLETE else None
        if self.state is State.COMPLETE and not self.is_cell:
            score, metrics = self.score, dict(self.result)
            values = [metrics[figure_name(name, metrics)] for name in head.get("scores", ())]
            chosen = chosen_settings(head.get("free", ()), job, metrics)
            if self.trial is not None:
                chosen = self.trial.user_attrs.get("chosen", {})
        end = {"state": self.state, "reason": self.reason, "score": score}
        return {"event": "close", "key": key, **end, "values": values, "metrics": metrics, "chosen": chosen}


def known_trainings(
    home: Path, folder: Path, studies: Mapping[str, Sequence[FrozenTrial]]
) -> dict[str, Known]:
    """All of one sweep or table by their keys; `studies` has its trials in Optuna by scope."""
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
        logged: dict[int, dict[str, float]] = {}
        its = Known(start, place, path.parent / TEXTS, scope=tags.get(Tag.SCOPE, ""), logged=logged)
        if Tag.TRIAL in tags:
            trials = studies.get(its.scope, ())
            its.trial = next((t for t in trials if t.user_attrs.get("label") == start["name"]), None)
        for entry in others:
            if entry.get("kind") == "metrics":
                values = {name: float(value) for name, value in entry["values"].items()}
                its.score = values.get(SCORE, its.score)
                logged.setdefault(int(entry["step"]), {}).update(values)
            elif entry.get("kind") in ("finish", "reopen"):
                its.state = State(entry.get("state", State.RUNNING))
                its.reason = entry.get("reason", "")
        if (place / RESULT).is_file():
            its.result = json.loads((place / RESULT).read_text())
        found[key] = its
    return found
