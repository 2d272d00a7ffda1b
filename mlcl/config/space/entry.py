"""One entry of the space file, as it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config.space.domain import Domain
from mlcl.config.space.domains import KINDS
from mlcl.config.space.error_location import Place
from mlcl.errors import did_you_mean


@dataclass(frozen=True)
class Entry:
    """A pattern of keys, the kind of their domain, what stands beside it, and the condition as written."""

    place: Place
    pattern: str
    kind: str
    value: Any
    when: Any = None

    @classmethod
    def read(cls, file: str | Path, pattern: str, spec: Mapping[str, Any]) -> Entry:
        """The entry, of which the kind is checked. Raises UserError."""
        place = Place(file, f"space.{pattern}")
        kinds = [key for key in spec if key != "when"]
        if len(kinds) != 1:
            raise place.error("give exactly one kind", kinds, tuple(KINDS))
        kind = kinds[0]
        if kind not in KINDS:
            raise place.error(f"unknown kind{did_you_mean(kind, KINDS)}", kind, tuple(KINDS))
        if "when" in spec and (not isinstance(spec["when"], Mapping) or not spec["when"]):
            raise place.error("when needs a key and its values", spec["when"], "when: {key: [values]}")
        return cls(place, pattern, kind, spec[kind], spec.get("when"))

    def domain(self, *keys: str) -> Domain:
        """The domain of these keys. Raises UserError."""
        return KINDS[self.kind].read(self.place, self.kind, self.value, keys)

    def shared_with(self) -> tuple[str, ...] | None:
        """Patterns of the keys that share one parameter with the pattern's; None: each key has its own."""
        shared = KINDS[self.kind].shared_with(self.place, self.value)
        return None if shared is None else tuple(shared)

    @property
    def sections(self) -> list[Mapping[str, Any]]:
        """The values that are whole sections, where values are listed."""
        values = self.value if KINDS[self.kind].listed and isinstance(self.value, list) else []
        return [value for value in values if isinstance(value, Mapping)]

    def grid(self) -> tuple[Any, ...]:
        """The values at which a key that is answered after training is scored. Raises UserError."""
        problem = KINDS[self.kind].not_posthoc
        if problem is not None:
            allowed = tuple(kind for kind, domain in KINDS.items() if domain.not_posthoc is None)
            raise self.place.error(problem, self.kind, allowed)
        if self.when is not None:
            raise self.place.error(
                "has no condition: it is not drawn, every trial is scored at all its values", self.when
            )
        return self.domain(self.pattern).grid()
