"""Logs the events of the training loop."""

from __future__ import annotations

from mlcl.tracking.log import RunLog
from mlcl.training.events import Event, Listener


def mlflow_listener(log: RunLog, *, system: bool = False) -> Listener:
    """A listener that logs the metrics of every event at its step, the last ones as `RunLog.final_metrics`.

    With `system` also load and memory of the machine. It flushes before a checkpoint is written: a resumed
    run repeats the steps behind its checkpoint only, so no metric is lost by a kill.
    """

    def listen(event: Event) -> None:
        if event.metrics:
            write = log.final_metrics if event.kind == "end" else log.metrics
            machine = _machine() if system and event.kind != "end" else {}
            write({**event.metrics, **machine, "epoch": event.epoch}, event.step)
        if event.kind in ("saving", "end"):
            log.flush()

    return listen


def _machine() -> dict[str, float]:
    from mlcl.tracking.system_metrics import system_metrics  # imports torch, which is slow

    return system_metrics()
