"""Brings an Optuna study to what the ledger says. Doing it again changes nothing."""

from __future__ import annotations

from typing import Any

import optuna

from mlcl.service.engine.entries import Entry
from mlcl.service.search.study import tell
from mlcl.tracking import State


def sync_study(study: optuna.Study, entry: Entry) -> None:
    """Tells a search trial's rungs, values, settings and state to its study."""
    assert entry.study_number is not None
    attrs: dict[str, Any] = {
        "settings": dict(entry.settings),
        "label": entry.label,
        "state": entry.state,
        "reason": entry.reason,  # also where there is none: an earlier one must not stay
    }
    if entry.chosen:
        attrs["chosen"] = dict(entry.chosen)
    values = entry.values if entry.state is State.COMPLETE else None
    tell(study, entry.study_number, entry.state, values, entry.rungs, attrs)
