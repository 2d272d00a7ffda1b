"""A listener of the training loop that logs to a run's log, with load and memory of the machine."""

from __future__ import annotations

from contextlib import suppress

from mlcl.tracking.log import RunLog
from mlcl.training.events import Event, Listener

MEGABYTE = 2**20


def mlflow_listener(log: RunLog, then: Listener = lambda _: None, *, system: bool = False) -> Listener:
    """A listener that logs the metrics of every event at its step, the last ones as `RunLog.final_metrics`.

    With `system` also load and memory of the machine. It flushes before a checkpoint is written: a resumed
    run repeats the steps behind its checkpoint only, so no metric is lost by a kill. After that it calls the
    listener `then`.
    """

    def listen(event: Event) -> None:
        if event.metrics:
            write = log.final_metrics if event.kind == "end" else log.metrics
            machine = system_metrics() if system and event.kind != "end" else {}
            write({**event.metrics, **machine, "epoch": event.epoch}, event.step)
        if event.kind in ("saving", "end"):
            log.flush()
        then(event)

    return listen


def system_metrics() -> dict[str, float]:
    """Load and memory of the processor and of this process's GPU, under MLflow's names for system metrics.

    Percentages and megabytes, of everything that runs there; loads are since the last call. A GPU's load
    needs the package nvidia-ml-py and is left out without it.
    """
    import psutil
    import torch  # slow to import

    memory = psutil.virtual_memory()
    found = {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": memory.used / MEGABYTE,
        "system_memory_usage_percentage": memory.percent,
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        device = torch.cuda.current_device()
        (free, total), gpu = torch.cuda.mem_get_info(device), f"gpu_{device}"
        found[f"{gpu}_memory_usage_megabytes"] = (total - free) / MEGABYTE
        found[f"{gpu}_memory_usage_percentage"] = 100 * (total - free) / total
        with suppress(ModuleNotFoundError, RuntimeError):
            found[f"{gpu}_utilization_percentage"] = float(torch.cuda.utilization(device))
    return {f"system/{name}": value for name, value in found.items()}
