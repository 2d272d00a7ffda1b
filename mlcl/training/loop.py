"""The training loop over epochs and steps, in one process or on several ranks.

Training can be stopped and resumed after any step; on a CPU the final weights are equal bit by bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from mlcl.config.training_sections import TrainConfig
from mlcl.grad_cache import rng_state, set_rng_state
from mlcl.samplers import EpochSampler
from mlcl.training.batches import Batch, Rows, label_statistics
from mlcl.training.checkpoint import (
    last_checkpoint,
    load_checkpoint,
    load_trained_weights,
    save_checkpoint,
    trained_weights,
)
from mlcl.training.context import Context
from mlcl.training.events import Diverged, Event, Kind, Stopped
from mlcl.training.grad_cache import Passes, fit, gradient_norms, has_batch_norm, least_samples
from mlcl.training.loop_settings import Callbacks, LogWindow, Patience, Position
from mlcl.training.objective import ContrastiveModel, ObjectiveValue
from mlcl.training.optim import build_optimizer, build_schedule, learning_rates

SAVE_EVERY = 5.0
"""The fewest seconds between two checkpoints, if the job does not set `checkpoint_every`."""
LOG_EVERY = 50
"""The number of steps over which logged values are averaged; an epoch's last window may be shorter."""
OWN_VIEWS = 0.5
"""The loop warns if other views of an anchor's own sample have a larger mean weight than this in a loss."""


@dataclass
class Loop:
    """The training of a model: its parts, its position and its state.

    `train` is the section of the job. `checkpoint` is the path of the checkpoint, None to write none;
    `identity` has the hash of the job and the fingerprint of its data, which a checkpoint must match.
    """

    model: ContrastiveModel
    rows: Rows
    sampler: EpochSampler
    context: Context
    train: TrainConfig
    views: int
    validate_every: int
    patience: Patience | None
    callbacks: Callbacks
    checkpoint: Path | None
    identity: dict[str, str]
    position: Position = field(default_factory=Position)
    best_weights: dict[str, Tensor] | None = None
    saved_at: float = -math.inf
    window: LogWindow = field(default_factory=LogWindow)
    began: float = field(default_factory=time.perf_counter)
    optimizer: Optimizer = field(init=False)
    schedule: LambdaLR = field(init=False)

    def __post_init__(self) -> None:
        self.optimizer = build_optimizer(self.model, self.train)
        self.schedule = build_schedule(self.optimizer, self.train.schedule, self.steps, self.train.warmup)

    @property
    def steps(self) -> int:
        """The number of optimiser steps of the whole training."""
        return self.train.epochs * self.sampler.steps_per_epoch

    @property
    def seconds(self) -> float:
        """The seconds of training until now, with those of earlier sessions up to their last checkpoints."""
        return self.position.seconds + time.perf_counter() - self.began

    @property
    def chosen_epoch(self) -> int:
        """The epoch whose weights `run` leaves in the model: the best one, or the last if it kept none."""
        best = self.position.best_step
        return self.position.epoch if best is None else best // self.sampler.steps_per_epoch

    @property
    def share(self) -> int:
        """The largest number of samples that one process has in a batch."""
        return math.ceil(self.sampler.batch_size / self.context.world_size)

    @property
    def micro_batch(self) -> int:
        """The number of samples that a process encodes at once, limited by the job and by memory."""
        sizes = (self.share, self.train.micro_batch_size, self.position.micro_batch_size)
        return min(size for size in sizes if size is not None)

    def resume(self) -> bool:
        """Loads the last undamaged checkpoint, and returns whether there is one.

        Raises UserError if the checkpoint belongs to another job or other data, UnreadableCheckpointError if
        the file cannot be read now.
        """
        if self.checkpoint is None:
            return False
        state = self._load_main_state(self.checkpoint)
        if state is None:
            return False
        load_trained_weights(self.model, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.position = Position(**state["position"])
        self.best_weights = state.get("best_weights")
        self.model.objective.load_queues(state.get("queues", {}))
        # With another number of ranks, dropout continues with fresh random streams.
        if len(state["rng"]) == self.context.world_size:
            set_rng_state(state["rng"][self.context.rank])
        return True

    def _load_main_state(self, path: Path) -> dict[str, Any] | None:
        """Loads on every rank the checkpoint that rank 0 chooses, so that all resume at the same step."""
        if not self.context.is_main:
            file = self.context.objects(None)[0]
            return None if file is None else load_checkpoint(file, **self.identity)
        file, state, damage = last_checkpoint(path, **self.identity)
        self.context.objects(file)
        if damage:
            self.tell("damage", note=damage)
        return state

    def save(self) -> None:
        """Writes the checkpoint: weights, optimiser, schedule, position and every rank's random state."""
        if self.checkpoint is None:
            return
        self.tell("saving")
        self._read_window()
        self.saved_at = time.monotonic()
        rng = self.context.objects(rng_state())
        if self.context.is_main:
            weights, is_best = trained_weights(self.model), self.position.step == self.position.best_step
            state: dict[str, Any] = {
                **self.identity,
                "model": weights,
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "position": vars(self.position) | {"seconds": self.seconds},
                # Tensors of the same storage are written once.
                "best_weights": weights if is_best else self.best_weights,
                "rng": rng,
                "queues": self.model.objective.queue_states(),
            }
            save_checkpoint(self.checkpoint, state)

    def run(self) -> None:
        """Trains to the last epoch or until early stopping, and then loads the best weights, if it kept any.

        Raises Stopped if a stop was requested, after writing the checkpoint. Raises Diverged if a loss or
        weight is not finite, before the next checkpoint or validation.
        """
        self.began = time.perf_counter()
        passes = Passes.of(self.model, self.context, self.train, self.views, self.share)
        self._note_batch_norm()
        while not self._ended:
            self._run_epoch(passes)
            position = self.position
            position.epoch += 1
            position.step_in_epoch = 0
            if position.epoch == self.train.epochs or position.epoch % self.validate_every == 0:
                self._validate()
            if self._ended or self.context.any(self.context.is_main and self._is_checkpoint_due):
                self.save()
        if self.best_weights is not None:
            load_trained_weights(self.model, self.best_weights)

    @property
    def _is_checkpoint_due(self) -> bool:
        interval = self.train.checkpoint_every
        if interval is not None:
            return self.position.epoch % interval == 0
        return time.monotonic() - self.saved_at >= SAVE_EVERY

    @property
    def _ended(self) -> bool:
        patience = self.patience
        return self.position.epoch >= self.train.epochs or (
            patience is not None and self.position.stale >= patience.validations
        )

    def _run_epoch(self, passes: Passes) -> None:
        self.model.train()
        position = self.position
        wait_time, start, samples = 0.0, time.perf_counter(), 0
        for batch, seconds in self._timed_batches():
            wait_time += seconds
            samples += len(batch)
            last = position.step_in_epoch + 1 == self.sampler.steps_per_epoch
            full = last or position.window_steps + 1 == LOG_EVERY
            norms = self._run_step(passes, batch, full)
            position.step_in_epoch += 1
            position.step += 1
            elapsed = time.perf_counter() - start
            rate = samples * self.context.world_size / elapsed
            pace = {"train/rows_per_second": rate, "train/data_wait": wait_time / elapsed}
            if self.train.compile and position.step == 1:
                self.tell("note", note=f"the first step took {elapsed:.0f} s, with the compilation")
            self.tell("step", {**self._close_window(), **norms, **pace} if full else {})
            if self.context.any(self.callbacks.should_stop()):
                self.save()
                raise Stopped

    def _timed_batches(self) -> Iterator[tuple[Batch, float]]:
        """Yields this rank's remaining batches of the epoch, each with the seconds spent waiting for it."""
        start = time.perf_counter()
        indices = self.sampler.batches(self.position.epoch, self.position.step_in_epoch)
        for batch in self.rows.batches(indices, self.views, self.context.device):
            yield batch, time.perf_counter() - start
            start = time.perf_counter()

    def _run_step(self, passes: Passes, batch: Batch, full: bool) -> dict[str, float]:
        """Makes an optimiser step. Returns gradient norms to log if `full`: the step ends a log window."""
        objective, norms = self.model.objective, dict[str, float]()
        objective.set_progress(self.position.step / max(1, self.steps - 1))
        value = self._add_gradient(passes, batch)
        if full and self.train.log_gradients:
            norms = gradient_norms(objective, value.output, batch, self.context, self.train.precision)
        if self.position.step == 0:
            self._note_own_views()
        if self.train.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.train.clip_norm)
        self.window.add({"loss": value.total, **value.parts, **objective.temperatures()})
        self.position.window_steps += 1
        self.optimizer.step()
        self.schedule.step()
        objective.push_queues()
        return {f"train/{name}": norm for name, norm in norms.items()}

    def _add_gradient(self, passes: Passes, batch: Batch) -> ObjectiveValue:
        """Adds the batch's gradient; if memory runs out, halves the micro-batch, also of later steps."""
        size, minimum = self.micro_batch, least_samples(self.model.encoder)
        world_size = self.context.world_size
        value, new_size = fit(lambda samples: passes(batch, samples), size, minimum, self.model, world_size)
        if new_size < size:
            self.position.micro_batch_size = new_size
            note = f"out of memory: micro-batches of {new_size} samples a worker from here on, not {size}"
            self.tell("note", {"train/micro_batch_size": float(new_size)}, note)
            if size == self.share:
                self._note_batch_norm()
        return value

    def _note_batch_norm(self) -> None:
        size = self.micro_batch
        if size < self.share and has_batch_norm(self.model.encoder):
            self.tell("note", note=f"BatchNorm: statistics are those of micro-batches of {size} samples")

    def _note_own_views(self) -> None:
        """Warns if a loss on labels puts most weight on an anchor's own views in the first batch."""
        for name, head in self.model.objective.named_heads():
            (share,) = self.context.mean([head.diagnostics().get("own_view_weight", 0.0)])
            if share > OWN_VIEWS and head.loss.spec.labels != "none":
                note = f"head {name}: {share:.0%} of an anchor's weight is on other views of its own sample"
                meaning = f"{head.loss.spec.name} mostly does what simclr does"
                self.tell("note", note=f"{note} in the first batch: {meaning}")

    def _read_window(self) -> None:
        """Adds logged values to the window's sums. Raises Diverged on all ranks if a value is not finite.

        The logged values of all ranks, and all weights, are checked.
        """
        if not len(self.window):
            return
        steps = self.window.read(self.position.window)
        first = next((n for n, row in enumerate(steps) if not all(map(math.isfinite, row.values()))), None)
        names, weights = zip(*self.model.named_parameters(), strict=True)
        # Minimum and maximum of each weight, NaN if it has a NaN: isfinite would copy the whole weight.
        bounds = torch.stack([torch.stack(weight.detach().aminmax()) for weight in weights])
        finite = bounds.isfinite().all(1).tolist()
        if not self.context.any(first is not None or not all(finite)):
            return
        bad_steps = [step for step in self.context.objects(first) if step is not None]
        if bad_steps:
            raise Diverged(self._describe_bad_loss(steps[min(bad_steps)], len(steps) - min(bad_steps)))
        bad_names = [name for name, is_finite in zip(names, finite, strict=True) if not is_finite]
        raise Diverged(f"weights are not finite after step {self.position.step}: {', '.join(bad_names[:3])}")

    def _describe_bad_loss(self, values: dict[str, float], ago: int) -> str:
        """Returns the error text for a loss that was not finite `ago` steps ago."""
        position = self.position
        indices = self.sampler.batches(position.epoch, position.step_in_epoch - ago)
        batch = self.rows.batch(next(iter(indices)), self.views, self.context.device)
        parts = {name: value for name, value in values.items() if name.endswith("/loss")}
        bad_parts = [name for name, value in parts.items() if not math.isfinite(value)]
        return (
            f"loss is not finite at step {position.step - ago} (epoch {position.epoch}), "
            f"in {', '.join(bad_parts) or 'another rank'}; parts: {parts}; "
            f"batch: {label_statistics(batch.labels)}"
        )

    def _close_window(self) -> dict[str, float]:
        """Returns means over the window's steps and ranks, the last diagnostics and the learning rates."""
        self._read_window()
        position = self.position
        values = {name: total / position.window_steps for name, total in position.window.items()}
        values |= self.model.objective.diagnostics()
        position.window, position.window_steps = {}, 0
        means = self.context.mean(list(values.values()))
        metrics = {f"train/{name}": mean for name, mean in zip(values, means, strict=True)}
        return metrics | {f"train/{name}": rate for name, rate in learning_rates(self.optimizer).items()}

    def _validate(self) -> None:
        # Since the last forward, BatchNorm's statistics are those of each rank; a checkpoint has rank 0's.
        self.context.copy_from_main(self.model.buffers())
        self.model.eval()
        metrics = self.callbacks.validate()
        self.position.validations[self.position.epoch] = {k: float(v) for k, v in metrics.items()}
        self.tell("validation", metrics)
        if self.patience is not None:
            self._keep_best_weights(self.patience, metrics)

    def _keep_best_weights(self, patience: Patience, metrics: dict[str, float]) -> None:
        """Copies the weights if the validation is the best so far. Rank 0 decides for all ranks."""
        # Without a classifier, which two-phase jobs train later, the neighbours' metric is compared.
        value = metrics.get(patience.metric, metrics.get(f"knn/{patience.metric}", math.nan))
        position = self.position
        if self.context.any(self.context.is_main and patience.is_better(value, position.best)):
            position.best, position.best_step, position.stale = value, position.step, 0
            weights = trained_weights(self.model)
            self.best_weights = {name: t.to("cpu", copy=True) for name, t in weights.items()}
            return
        position.stale += 1
        if self._ended and position.epoch < self.train.epochs:
            note = f"no better {patience.metric} in {position.stale} validations: training ends"
            self.tell("note", note=f"{note} at epoch {position.epoch}, with the best weights")

    def tell(self, kind: Kind, metrics: dict[str, float] | None = None, note: str = "") -> None:
        """Passes an event with the loop's current epoch and step to the listener, on rank 0 alone."""
        if self.context.is_main:
            position, epochs, metrics = self.position, self.train.epochs, metrics or {}
            validations = dict(position.validations) if kind == "start" else {}
            event = Event(kind, position.epoch, epochs, position.step, self.steps, metrics, note, validations)
            self.callbacks.listener(event)
