"""The points of a slice: measured once, kept in a file, printed as a table."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

Figures = dict[str, Any]


@dataclass
class Points:
    """The figures of a slice by the name of each point, in `file` as JSON and beside it as Markdown.

    A point in the file is not measured again; one that comes after `seconds` is left to the next call.
    `about` says what the figures are of; a file about something else is refused by SystemExit.
    """

    file: Path
    about: Figures
    seconds: float
    smoke: bool
    points: dict[str, Figures] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not self.file.exists():
            return
        kept = json.loads(self.file.read_text())
        if kept["about"] != self.about:
            raise SystemExit(
                f"{self.file} is about {kept['about']}, this is {self.about}: another --out, please"
            )
        self.points = kept["points"]

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def precision(self) -> Literal["float32", "bf16"]:
        """Of trainings; a processor without bf16 instructions takes a minute for a step of ResNet-18."""
        return "bf16" if self.device.type == "cuda" else "float32"

    @property
    def rest(self) -> float:
        """Seconds that the slice still has."""
        return self.seconds - (time.monotonic() - self.began)

    def measure(self, name: str, work: Callable[[], Figures]) -> None:
        """Runs `work` and keeps its figures, also that memory ran out."""
        if name in self.points:
            return
        if self.rest <= 0:
            self.left.append(name)
            return
        try:
            self.keep(name, work())
        except torch.OutOfMemoryError:
            self.keep(name, {"problem": "out of memory"})
        gc.collect()
        torch.cuda.empty_cache()

    def keep(self, name: str, figures: Figures) -> None:
        """Writes a point's figures, also over older ones."""
        self.points[name] = figures
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for file, text in (
            (self.file, json.dumps({"about": self.about, "points": self.points}, indent=1)),
            (self.file.with_suffix(".md"), self.table()),
        ):
            work = file.with_name(f".{file.name}")
            work.write_text(text)
            work.replace(file)
        print(self._line(name, figures), flush=True)

    def table(self) -> str:
        """One line of Markdown a point."""
        about = ", ".join(str(value) for value in self.about.values())
        return "\n".join(
            [f"{self.file.stem}: {about}\n", *(self._line(*each) for each in self.points.items()), ""]
        )

    def _line(self, name: str, figures: Figures) -> str:
        values = (f"{value:.4g}" if isinstance(value, float) else value for value in figures.values())
        return f"- {name}: " + ", ".join(f"{key} {value}" for key, value in zip(figures, values, strict=True))


def seconds_of(work: Callable[[], object], device: torch.device, most: float = 2.0) -> float:
    """The median time of a call after the first, of as many as `most` seconds hold, three at least."""
    work()
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < most:
        wait(device)
        began = time.perf_counter()
        work()
        wait(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
