"""An invented sweep for tests of printed output."""

from pathlib import Path

from mlcl.config import Goal
from mlcl.results.sweep_result import SweepResult
from mlcl.results.training_result import SettingResult, TrainingResult
from mlcl.tracking import State

TEMPERATURE = "objective.heads.topic.temperature"


def trained(number, state=State.COMPLETE, score=None, **how):
    how = {"settings": {TEMPERATURE: 0.1 * (number + 1)}, "run_id": f"run{number}", **how}
    values = () if score is None else (score,)
    return TrainingResult(f"t{number}", f"trial {number}", state, score=score, **{"values": values, **how})


def seed(number, state=State.COMPLETE, **metrics):
    named_metrics = {name.replace("__", "/"): value for name, value in metrics.items()}
    return TrainingResult(f"s{number}", f"best found, seed {number}", state, {}, metrics=named_metrics)


def report(**how):
    trials = (
        trained(0, score=0.5),
        trained(1, State.PRUNED, 0.9),
        trained(2, score=0.75, chosen={"evaluation.knn.k": 5, "evaluation.knn.lambda": 0.25}),
        trained(3, State.FAILED, reason="the loss is not finite [step 3]", run_id=None),
    )
    fields = {
        "id": "mlcl-1",
        "name": "job-space",
        "state": State.COMPLETE,
        "reason": "",
        "folder": Path("outputs/sweeps/mlcl-1"),
        "goals": (Goal("val/accuracy", "max"),),
        "score": "knn_best/val/accuracy",
        "mode": "max",
        "trials": trials,
    }
    return SweepResult(**{**fields, **how})


def two_goals(**how):
    front = (
        trained(0, score=0.5, values=(0.5, 0.125)),
        trained(4, score=0.25, values=(0.25, 0.0625), run_id=None),
    )
    goals = (Goal("val/accuracy", "max"), Goal("val/hamming_loss", "min"))
    return report(goals=goals, score="val/accuracy", trials=(*front, trained(5)), **how)


def confirmed(label, *seeds, run_id="group"):
    return SettingResult("c0", (label,), State.COMPLETE, {TEMPERATURE: 0.1}, seeds, run_id=run_id)
