"""The measured points of a slice: each is measured once, kept in a file and printed as a line of a table."""

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
    """The figures of a slice by the name of each point, kept in `file` as JSON and beside it as Markdown.

    A point that the file has is not measured again. A point that comes after `seconds` is left to the next
    call. `about` is the machine that the figures belong to; a file with another `about` is refused with
    SystemExit.
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
        document = json.loads(self.file.read_text())
        if document["about"] != self.about:
            raise SystemExit(
                f"{self.file} is about {document['about']}, this is {self.about}: another --out, please"
            )
        self.points = document["points"]

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def precision(self) -> Literal["float32", "bf16"]:
        """The precision of trainings: bf16 on a GPU, else float32, as many CPUs are too slow in bf16."""
        return "bf16" if self.device.type == "cuda" else "float32"

    @property
    def rest(self) -> float:
        """The seconds that the slice has left."""
        return self.seconds - (time.monotonic() - self.began)

    def measure(self, name: str, work: Callable[[], Figures]) -> None:
        """Runs `work` and keeps its figures, or a note that memory ran out."""
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
        """Writes the figures of a point; figures that it already has are replaced."""
        self.points[name] = figures
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for file, text in (
            (self.file, json.dumps({"about": self.about, "points": self.points}, indent=1)),
            (self.file.with_suffix(".md"), self.table()),
        ):
            work_file = file.with_name(f".{file.name}")
            work_file.write_text(text)
            work_file.replace(file)
        print(self._line(name, figures), flush=True)

    def table(self) -> str:
        """Returns a Markdown table with one line for each point."""
        about = ", ".join(str(value) for value in self.about.values())
        return "\n".join(
            [f"{self.file.stem}: {about}\n", *(self._line(*item) for item in self.points.items()), ""]
        )

    def _line(self, name: str, figures: Figures) -> str:
        values = (f"{value:.4g}" if isinstance(value, float) else value for value in figures.values())
        return f"- {name}: " + ", ".join(f"{key} {value}" for key, value in zip(figures, values, strict=True))


def seconds_of(work: Callable[[], object], device: torch.device, min_seconds: float = 2.0) -> float:
    """Returns the median time of a call after the first, over at least three calls and `min_seconds`."""
    work()
    times: list[float] = []
    while len(times) < 3 or sum(times) < min_seconds:
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def wait(device: torch.device) -> None:
    """Waits until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
