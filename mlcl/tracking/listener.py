"""From the loop's events to a run's log."""

from __future__ import annotations

from mlcl.tracking.log import RunLog
from mlcl.training.events import Event, Listener


def mlflow_listener(log: RunLog) -> Listener:
    """Logs every event's metrics at its step.

    Before a checkpoint is written everything up to it is on the disk: a resumed run repeats only later
    steps, so no metric is lost, whatever is killed.
    """

    def listen(event: Event) -> None:
        if event.metrics:
            log.metrics({**event.metrics, "epoch": event.epoch}, event.step)
        if event.kind in ("saving", "end"):
            log.flush()

    return listen
