"""The job's section `train.sampler`: how the rows of a batch are chosen."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mlcl.config.section import Fraction, Section

USED_BY = {
    "labels": ("balanced", "pk", "hierarchical"),
    "k": ("pk", "hierarchical"),
    "branches": ("hierarchical",),
    "power": ("balanced",),
}
"""The samplers that read a key."""


class SamplerConfig(Section):
    """How the rows of a batch are chosen. A name alone stands for `{name: NAME}`."""

    name: Literal["uniform", "balanced", "pk", "hierarchical"] = Field(
        "uniform", description="[what each is for](concepts.md#which-rows-are-in-a-batch)"
    )
    labels: str | None = Field(
        None,
        description="label space; default: the classifier's; hierarchical: the first head's hierarchy",
    )
    k: int | None = Field(
        None, ge=2, description="of pk and hierarchical: rows of a class in a batch; default: 4, and 2"
    )
    branches: int | None = Field(
        None, ge=1, description="of hierarchical: finer classes of a class in a batch; default: 2"
    )
    power: Fraction | None = Field(
        None,
        description="of balanced: a class is drawn by its rows to this power; 0 (default): all alike, "
        "0.5: by the square root, 1: as they come",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        for key, names in USED_BY.items():
            if getattr(self, key) is not None and self.name not in names:
                raise ValueError(f"{key} goes with {' and '.join(names)}, not with {self.name}")
        return self
