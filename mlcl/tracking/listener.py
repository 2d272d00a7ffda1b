"""Logs the events of the training loop."""

from __future__ import annotations

from mlcl.tracking.log import RunLog
from mlcl.training.events import Event, Listener


def mlflow_listener(log: RunLog) -> Listener:
    """A listener that logs the metrics of every event at its step, the last ones as `RunLog.figures`.

    It flushes before a checkpoint is written: a resumed run repeats the steps behind its checkpoint only, so
    no metric is lost by a kill.
    """

    def listen(event: Event) -> None:
        if event.metrics:
            write = log.figures if event.kind == "end" else log.metrics
            write({**event.metrics, "epoch": event.epoch}, event.step)
        if event.kind in ("saving", "end"):
            log.flush()

    return listen
