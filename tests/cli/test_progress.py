"""Progress on a terminal and elsewhere, fed with the events of a run."""

import io

import pytest
from rich.console import Console

from mlcl.cli import output, progress
from mlcl.training.events import Event

EVENTS = [
    Event("start", 0, 2, 0, 4),
    Event("step", 0, 2, 1, 4),
    Event("step", 0, 2, 2, 4, {"train/loss": 1.5, "train/rows_per_second": 1234.0}),
    Event("validation", 1, 2, 2, 4, {"val/accuracy": 0.25}),
    Event("saving", 1, 2, 2, 4),
    Event("phase", 2, 2, 4, 4, note="test"),
    Event("end", 2, 2, 4, 4, {"test/accuracy": 0.5}),
]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_is_shown(monkeypatch, terminal):
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=160, soft_wrap=True, highlight=False)
    monkeypatch.setattr(output, "errors", console)
    monkeypatch.setattr(progress, "errors", console)
    monkeypatch.setattr(progress, "is_interactive", lambda: terminal)
    with progress.RunProgress() as show:
        for event in EVENTS:
            show(event)
            if show._bar is not None:
                show._bar.refresh()
    text = written.getvalue()
    for expected in ("epoch 1/2", "loss 1.5000", "1,234 rows/s", "val/accuracy 0.2500", "test"):
        assert expected in text
    if not terminal:
        assert "\x1b" not in text
        assert "m00s left" in text or "0m" in text
