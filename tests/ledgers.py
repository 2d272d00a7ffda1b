"""The ledger of the one sweep or table under a home, as it stands while a command writes it."""

import json
from pathlib import Path
from typing import Any


def events(home: Path) -> list[dict[str, Any]]:
    """Its whole lines; none where there is no ledger yet."""
    for path in home.glob("*/*/ledger.jsonl"):
        raw = path.read_bytes()
        return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]
    return []
