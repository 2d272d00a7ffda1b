"""The record of a run, sweep or table as the text of a file, with a checksum over all that it says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mlcl.tracking import State

SUM = "sum"


@dataclass(frozen=True)
class RunRecord:
    """One run, sweep or table: its id is the folder's name and a tag in MLflow, `log` the id of its log.

    `name` is what the user calls a sweep or a table, `ledger` the checksum of their ledger's last line when
    the last command ended. `place` counts the records of a home as they were begun, whatever the clock said;
    records of earlier releases have 0, and some of them `order`, their place among those of their kind.
    """

    id: str
    experiment: str
    job_hash: str
    fingerprint: str
    state: State
    log: str
    tracking_uri: str
    created: str
    name: str = ""
    ledger: str = ""
    order: int = 0
    place: int = 0


def record_text(record: RunRecord) -> str:
    """The text of a record, with its checksum."""
    fields = asdict(record)
    return json.dumps({**fields, SUM: _sum(fields)}, indent=2) + "\n"


def parse_record(text: str) -> RunRecord:
    """The record of a text; earlier releases wrote no checksum.

    Raises ValueError, TypeError or KeyError where it is none, or its checksum is wrong.
    """
    fields = json.loads(text)
    if SUM in fields and fields.pop(SUM) != _sum(fields):
        raise ValueError("its checksum is wrong")
    return RunRecord(**{**fields, "state": State(fields["state"])})


def _sum(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
