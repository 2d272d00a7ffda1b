"""The training loop over epochs and steps, which can be stopped and resumed at any step.

One process and several ranks run the same code.
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
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from mlcl.data import EpochSampler
from mlcl.training.batches import Batch, Rows, label_statistics
from mlcl.training.checkpoint import (
    last_checkpoint,
    load_checkpoint,
    load_trained_weights,
    rng_state,
    save_checkpoint,
    set_rng_state,
    trained_weights,
)
from mlcl.training.context import Context
from mlcl.training.events import Diverged, Event, Kind, Stopped
from mlcl.training.grad_cache import Passes, gradient_norms
from mlcl.training.loop_settings import Callbacks, LogWindow, LoopSettings, Patience, Position
from mlcl.training.memory import fit, has_batch_norm, least_samples
from mlcl.training.objective import ContrastiveModel, ObjectiveValue
from mlcl.training.optim import learning_rates

SAVE_EVERY = 5.0
"""Least seconds between checkpoints, where the job does not count epochs between them."""
LOG_EVERY = 50
"""Steps of a logging window; an epoch's end closes it too."""
OWN_VIEWS = 0.5
"""Mean weight of an anchor on its own sample's other views from which a note is given."""


@dataclass
class Loop:
    """A training run: its parts, and `run`."""

    model: ContrastiveModel
    optimizer: Optimizer
    schedule: LambdaLR
    rows: Rows
    sampler: EpochSampler
    context: Context
    settings: LoopSettings
    callbacks: Callbacks
    checkpoint: Path | None
    identity: dict[str, str]
    position: Position = field(default_factory=Position)
    best_weights: dict[str, Tensor] | None = None
    saved_at: float = -math.inf
    window: LogWindow = field(default_factory=LogWindow)

    @property
    def steps(self) -> int:
        """Optimiser steps of the whole run."""
        return self.settings.epochs * self.sampler.steps_per_epoch

    @property
    def share(self) -> int:
        """The largest number of samples that a process has in a batch."""
        return math.ceil(self.sampler.batch_size / self.context.world_size)

    @property
    def micro_batch(self) -> int:
        """Samples that a process encodes at once: its share, or less by the job or by its memory."""
        sizes = (self.share, self.settings.micro_batch_size, self.position.micro_batch_size)
        return min(size for size in sizes if size is not None)

    def resume(self) -> bool:
        """Loads the last whole checkpoint; whether there is one. Raises UserError for another job's."""
        if self.checkpoint is None:
            return False
        state = self._state_of_main(self.checkpoint)
        if state is None:
            return False
        load_trained_weights(self.model, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.position = Position(**state["position"])
        self.best_weights = state.get("best_weights")
        # A group of another size goes on from the same weights, with fresh streams for dropout.
        if len(state["rng"]) == self.context.world_size:
            set_rng_state(state["rng"][self.context.rank])
        return True

    def _state_of_main(self, path: Path) -> dict[str, Any] | None:
        """The state that the main rank chooses, which every rank loads: they must go on from one place."""
        if not self.context.is_main:
            file = self.context.objects(None)[0]
            return None if file is None else load_checkpoint(file, **self.identity)
        file, state, damage = last_checkpoint(path, **self.identity)
        self.context.objects(file)
        if damage:
            self.tell("damage", note=damage)
        return state

    def save(self) -> None:
        """Writes the checkpoint: weights, optimiser, schedule, position, every rank's random state."""
        if self.checkpoint is None:
            return
        self.tell("saving")
        self._read_window()
        self.saved_at = time.monotonic()
        rng = self.context.objects(rng_state())
        if self.context.is_main:
            weights = trained_weights(self.model)
            state: dict[str, Any] = {
                **self.identity,
                "model": weights,
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "position": dict(vars(self.position)),
                # Tensors of the same storage are written once.
                "best_weights": weights
                if self.position.step == self.position.best_step
                else self.best_weights,
                "rng": rng,
            }
            save_checkpoint(self.checkpoint, state)

    def run(self) -> None:
        """Trains to the last epoch, or until patience ends, which leaves the best weights in the model.

        Raises Stopped after a requested stop, Diverged on a NaN, which no checkpoint and no validation sees.
        """
        passes = self._passes()
        self._say_batch_norm()
        while not self._ended:
            self._epoch(passes)
            position = self.position
            position.epoch += 1
            position.step_in_epoch = 0
            if position.epoch == self.settings.epochs or position.epoch % self.settings.validate_every == 0:
                self._validate()
            if self._ended or self.context.any(self.context.is_main and self._checkpoint_is_due):
                self.save()
        if self.best_weights is not None:
            load_trained_weights(self.model, self.best_weights)

    @property
    def _checkpoint_is_due(self) -> bool:
        every = self.settings.checkpoint_every
        if every is not None:
            return self.position.epoch % every == 0
        return time.monotonic() - self.saved_at >= SAVE_EVERY

    @property
    def _ended(self) -> bool:
        patience = self.settings.patience
        return self.position.epoch >= self.settings.epochs or (
            patience is not None and self.position.stale >= patience.validations
        )

    def _passes(self) -> Passes:
        if self.settings.compile:
            graphs = self.settings.compile == "graphs"
            self.model.encoder.compile(mode="reduce-overhead" if graphs else None)
        wrapped: nn.Module = self.model
        if self.context.world_size > 1:
            devices = [self.context.device] if self.context.device.type == "cuda" else None
            wrapped = DistributedDataParallel(self.model, device_ids=devices)
        return Passes(
            self.model,
            wrapped,
            self.context,
            self.settings.precision,
            self.settings.views,
            self.share,
        )

    def _epoch(self, passes: Passes) -> None:
        self.model.train()
        position = self.position
        waited, began, samples = 0.0, time.perf_counter(), 0
        for batch, seconds in self._batches():
            waited += seconds
            samples += len(batch)
            full = (
                position.window_steps + 1 == LOG_EVERY
                or position.step_in_epoch + 1 == self.sampler.steps_per_epoch
            )
            norms = self._step(passes, batch, full)
            position.step_in_epoch += 1
            position.step += 1
            elapsed = time.perf_counter() - began
            pace = {
                "train/rows_per_second": samples * self.context.world_size / elapsed,
                "train/data_wait": waited / elapsed,
            }
            if self.settings.compile and position.step == 1:
                self.tell("note", note=f"the first step took {elapsed:.0f} s, with the compilation")
            self.tell("step", {**self._close_window(), **norms, **pace} if full else {})
            if self.context.any(self.callbacks.should_stop()):
                self.save()
                raise Stopped

    def _batches(self) -> Iterator[tuple[Batch, float]]:
        """This rank's remaining batches of the epoch, with the seconds that each was waited for."""
        before = time.perf_counter()
        indices = self.sampler.batches(self.position.epoch, self.position.step_in_epoch)
        for batch in self.rows.batches(indices, self.settings.views, self.context.device):
            yield batch, time.perf_counter() - before
            before = time.perf_counter()

    def _step(self, passes: Passes, batch: Batch, full: bool) -> dict[str, float]:
        """A step of the optimiser. Returns the norms to log where it fills the logging window."""
        objective, norms = self.model.objective, dict[str, float]()
        objective.set_progress(self.position.step / max(1, self.steps - 1))
        value = self._gradient(passes, batch)
        if full and self.settings.log_gradients:
            norms = gradient_norms(objective, value.output, batch, self.context, self.settings.precision)
        if self.position.step == 0:
            self._say_own_views()
        if self.settings.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip_norm)
        self._add_to_window(value)
        self.optimizer.step()
        self.schedule.step()
        return {f"train/{name}": norm for name, norm in norms.items()}

    def _gradient(self, passes: Passes, batch: Batch) -> ObjectiveValue:
        """Adds the batch's gradient. Where memory runs out, later batches use smaller micro-batches, too."""
        size = self.micro_batch
        value, fitting = fit(
            lambda samples: passes(batch, samples),
            size,
            least_samples(self.model.encoder),
            self.model,
            self.context.world_size,
        )
        if fitting < size:
            self.position.micro_batch_size = fitting
            note = f"out of memory: micro-batches of {fitting} samples a worker from here on, not {size}"
            self.tell("note", {"train/micro_batch_size": float(fitting)}, note)
            if size == self.share:
                self._say_batch_norm()
        return value

    def _say_batch_norm(self) -> None:
        size = self.micro_batch
        if size < self.share and has_batch_norm(self.model.encoder):
            self.tell("note", note=f"BatchNorm: statistics are those of micro-batches of {size} samples")

    def _say_own_views(self) -> None:
        """Says which losses find, in the first batch, hardly any positives but an anchor's own views."""
        for name, head in self.model.objective.named_heads():
            (share,) = self.context.mean([head.diagnostics().get("own_view_weight", 0.0)])
            if share > OWN_VIEWS and head.loss.spec.labels != "none":
                note = f"head {name}: {share:.0%} of an anchor's weight is on other views of its own sample"
                meaning = f"{head.loss.spec.name} mostly does what simclr does"
                self.tell("note", note=f"{note} in the first batch: {meaning}")

    def _read_window(self) -> None:
        """Adds up the window's steps since it was last read. Raises Diverged where one of them, or the
        weights after them, are not finite; on all ranks."""
        if not len(self.window):
            return
        steps = self.window.read(self.position.window)
        first = next((n for n, values in enumerate(steps) if not _finite(values)), None)
        names, weights = zip(*self.model.named_parameters(), strict=True)
        # Each weight's least and largest, NaN where it has one: isfinite would make copies of the weight.
        bounds = torch.stack([torch.stack(weight.detach().aminmax()) for weight in weights])
        finite = bounds.isfinite().all(1).tolist()
        if not self.context.any(first is not None or not all(finite)):
            return
        found = [step for step in self.context.objects(first) if step is not None]
        if found:
            raise Diverged(self._bad_loss(steps[min(found)], len(steps) - min(found)))
        bad = [name for name, its in zip(names, finite, strict=True) if not its]
        raise Diverged(f"weights are not finite after step {self.position.step}: {', '.join(bad[:3])}")

    def _bad_loss(self, values: dict[str, float], ago: int) -> str:
        """What is said of a step of so many steps ago, in this epoch, with these values."""
        position = self.position
        indices = self.sampler.batches(position.epoch, position.step_in_epoch - ago)
        batch = self.rows.batch(next(iter(indices)), self.settings.views, self.context.device)
        parts = {name: value for name, value in values.items() if name.endswith("/loss")}
        bad = [name for name, value in parts.items() if not math.isfinite(value)]
        return (
            f"loss is not finite at step {position.step - ago} (epoch {position.epoch}), "
            f"in {', '.join(bad) or 'another rank'}; parts: {parts}; batch: {label_statistics(batch.labels)}"
        )

    def _add_to_window(self, value: ObjectiveValue) -> None:
        self.window.add({"loss": value.total, **value.parts, **self.model.objective.temperatures()})
        self.position.window_steps += 1

    def _close_window(self) -> dict[str, float]:
        """The window's means over steps and ranks, its last batch's diagnostics, and the learning rates."""
        self._read_window()
        position = self.position
        values = {name: total / position.window_steps for name, total in position.window.items()}
        values |= self.model.objective.diagnostics()
        position.window, position.window_steps = {}, 0
        means = self.context.mean(list(values.values()))
        metrics = {f"train/{name}": mean for name, mean in zip(values, means, strict=True)}
        rates = learning_rates(self.optimizer)
        return metrics | {f"train/{name}": rate for name, rate in rates.items()}

    def _validate(self) -> None:
        self.model.eval()
        metrics = self.callbacks.validate()
        self.position.validations[self.position.epoch] = {k: float(v) for k, v in metrics.items()}
        self.tell("validation", metrics)
        if self.settings.patience is not None:
            self._compare(self.settings.patience, metrics)

    def _compare(self, patience: Patience, metrics: dict[str, float]) -> None:
        """Keeps the weights of a better validation. Rank 0 decides for all ranks."""
        # In two phases the classifier is trained after the encoder: the neighbours' metric stands in.
        value = metrics.get(patience.metric, metrics.get(f"knn/{patience.metric}", math.nan))
        position = self.position
        if self.context.any(self.context.is_main and patience.better(value, position.best)):
            position.best, position.best_step, position.stale = value, position.step, 0
            weights = trained_weights(self.model)
            self.best_weights = {name: t.to("cpu", copy=True) for name, t in weights.items()}
            return
        position.stale += 1
        if self._ended and position.epoch < self.settings.epochs:
            note = f"no better {patience.metric} in {position.stale} validations: training ends"
            self.tell("note", note=f"{note} at epoch {position.epoch}, with the best weights")

    def tell(self, kind: Kind, metrics: dict[str, float] | None = None, note: str = "") -> None:
        """Gives the listener an event at the loop's position, on rank 0 alone."""
        if self.context.is_main:
            at, epochs = self.position, self.settings.epochs
            earlier = dict(at.validations) if kind == "start" else {}
            self.callbacks.listener(
                Event(kind, at.epoch, epochs, at.step, self.steps, metrics or {}, note, earlier)
            )


def _finite(values: dict[str, float]) -> bool:
    return all(math.isfinite(value) for value in values.values())
