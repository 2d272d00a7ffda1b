"""What every section of a file that a person writes is made of: its base, bounded numbers and paths."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """A part of a file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def at_home(path: Path) -> Path:
    """`path` with a leading `~` replaced by the user's home; as it is where there is no such user."""
    with suppress(RuntimeError):
        return path.expanduser()
    return path


UserPath = Annotated[Path, AfterValidator(at_home)]
"""A path as a user writes it in a job or on the command line."""
