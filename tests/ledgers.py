"""The ledger of the one sweep or table under a home, as it stands while a command writes it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlcl.service.engine.ledger_lines import Chain
from mlcl.service.runs.run_store import RunFolder


def events(home: Path) -> list[dict[str, Any]]:
    """Its whole lines; none where there is no ledger yet."""
    for path in home.glob("*/*/ledger.jsonl"):
        raw = path.read_bytes()
        return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
    return []


def rewrite(path: Path, changed: Iterable[Mapping[str, Any]]) -> None:
    """Writes a ledger of these events with true checksums, which its folder's record has, too."""
    chain, lines = Chain(), []
    for event in changed:
        lines.append(chain.seal({key: value for key, value in event.items() if key != "sum"}))
        chain.read(lines[-1][:-1])
    path.write_bytes(b"".join(lines))
    folder = RunFolder(path.parent)
    if folder.record is not None:
        folder.write(replace(folder.record, ledger=chain.sum))
