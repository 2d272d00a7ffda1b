"""All uses of private parts of Ray, tested with the versions `TESTED`: look here first when Ray is upgraded.

`python -m mlcl.service.ray.private HOST:PORT` prints the version of the cluster at that address.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError
from ray.job_config import JobConfig

TESTED = ">=2.54,<2.61"
"""The versions of Ray that the tests ran with; `mlcl doctor` notes any other one."""


@contextmanager
def _replace_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    old_value = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old_value)


def kill_at_once() -> AbstractContextManager[None]:
    """Makes Ray end the processes that it starts in the context by SIGKILL, since they block SIGTERM."""
    from ray._private import services

    class Killed(services.ConsolePopen):
        def terminate(self) -> None:
            self.kill()

    return _replace_attribute(services, "ConsolePopen", Killed)


def keep_handler() -> AbstractContextManager[None]:
    """Keeps this process's handler of SIGTERM in `ray.init`, whose own would exit with status 15."""
    from ray._private import utils

    return _replace_attribute(utils, "set_sigterm_handler", lambda _handler: None)


def without_uv() -> AbstractContextManager[None]:
    """Makes `ray.init` start processes by this Python, not by `uv run`, which would install or wait."""
    from ray._private import ray_constants

    return _replace_attribute(ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV", False)


def on_loopback() -> AbstractContextManager[None]:
    """Makes a Ray that starts in the context listen on 127.0.0.1 alone, not on all addresses."""
    from ray._private import ray_constants

    return _replace_attribute(ray_constants, "ENABLE_RAY_CLUSTER", False)


@contextmanager
def patch_tune() -> Iterator[None]:
    """Makes Tune restart processes that run out of memory, forward no AWS_* variables, and drop ended trials.

    Unpatched, Tune ends all trainings if Ray's memory monitor kills a process. Ray writes the variables that
    Tune forwards, which may be secret, to its logs; local processes inherit them, other nodes have their own.
    Tune keeps 60 KiB of each ended trial in memory, and writes them all at every snapshot. Each trial keeps
    its `last_error`, which Tune would read from a file that another of its threads may be copying.
    """
    from ray.air.execution._internal import RayActorManager
    from ray.tune.execution import class_cache
    from ray.tune.execution.tune_controller import TuneController
    from ray.tune.experiment import Trial

    handle_error = Trial.handle_error
    task_failed, step_ended = RayActorManager._actor_task_failed, TuneController.on_step_end
    forwarded_names = {name for name in class_cache.ENV_VARS_TO_PROPAGATE if not name.startswith("AWS_")}

    def died(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = RayActorError(error_msg=str(exception))
        task_failed(self, tracked_actor_task, exception)

    def keep_error(trial: Any, error: Exception | None = None) -> None:
        trial.temporary_state.error = error
        handle_error(trial, error)

    def drop_ended(controller: Any) -> None:
        step_ended(controller)
        for trial in [trial for trial in controller.get_trials() if trial.is_finished()]:
            controller.get_trials().remove(trial)
            controller._trial_metadata.pop(trial.trial_id, None)
            for trials in (
                controller._stopped_trials,
                controller._failed_trials,
                controller._trials_to_cache,
            ):
                trials.discard(trial)

    with (
        _replace_attribute(RayActorManager, "_actor_task_failed", died),
        _replace_attribute(TuneController, "on_step_end", drop_ended),
        _replace_attribute(Trial, "handle_error", keep_error),
        _replace_attribute(class_cache, "ENV_VARS_TO_PROPAGATE", forwarded_names),
    ):
        yield


def last_error(trial: Any) -> Exception | None:
    """Returns the last error of a Tune trial that failed within `patch_tune`."""
    return getattr(trial.temporary_state, "error", None)


def forget_failures(trial: Any) -> None:
    """Makes Tune count the failures of a trial from zero again."""
    trial.run_metadata.num_failures = 0


class ImportPath(JobConfig):
    """The configuration of a Ray job whose processes import only from folders on this process's `sys.path`.

    Ray would add the current folder, in which a `transformers.py` would hide the installed package.
    """

    _py_driver_sys_path: list[str]

    def _get_proto_job_config(self) -> Any:
        folders = {str(Path(folder).resolve()) for folder in sys.path}
        self._py_driver_sys_path = [folder for folder in self._py_driver_sys_path if folder in folders]
        return super()._get_proto_job_config()


def running_heads() -> tuple[set[str], str | None]:
    """Returns the addresses of the Ray clusters on this machine, and that of the last `ray start` or None."""
    from ray._private import services

    services.find_gcs_addresses.cache_clear()
    return set(services.find_gcs_addresses()), services.find_bootstrap_address(None)


def cluster_version(address: str) -> str:
    """Returns the Ray version of the cluster at an address. Ray ends the process if no cluster answers."""
    from ray._common.usage.usage_lib import get_cluster_metadata
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    return str(get_cluster_metadata(GcsClient(address=address)).get("ray_version", ""))


if __name__ == "__main__":
    sys.stdout.write(cluster_version(sys.argv[1]))
