"""Replaces two private parts of Ray Tune. Read against Ray 2.60; look here first when Ray is upgraded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.air.execution._internal import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution import class_cache, tune_controller


class ActorManager(RayActorManager):
    """Treats a process that Ray's memory monitor killed as a dead one, which is replaced.

    Tune itself ends with an error of its own, and with it every training of the command.
    """

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = RayActorError(error_msg=str(exception))
        super()._actor_task_failed(tracked_actor_task, exception)


@contextmanager
def patched_tune() -> Iterator[None]:
    """While inside, Tune uses our actor manager and forwards no AWS_* variables to its processes.

    Ray writes what Tune forwards into its logs. A local process inherits these variables without that, one
    on another node has what that node gives it.
    """
    usual = tune_controller.RayActorManager, class_cache.ENV_VARS_TO_PROPAGATE
    plain = {name for name in class_cache.ENV_VARS_TO_PROPAGATE if not name.startswith("AWS_")}
    tune_controller.RayActorManager, class_cache.ENV_VARS_TO_PROPAGATE = ActorManager, plain
    try:
        yield
    finally:
        tune_controller.RayActorManager, class_cache.ENV_VARS_TO_PROPAGATE = usual
