"""The plan of a sweep in a few lines: trials, epochs, time, cost, what varies, where it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcl.cli.sweep_progress import duration


def sweep_lines(tree: Mapping[str, Any]) -> list[str]:
    """From the tree of `plan_sweep`."""
    its, data, training, time = tree["sweep"], tree["data"], tree["training"], tree["sweep"]["time"]
    searched = [f"{each['trials']} of {name}" for name, each in its["trials_of_baselines"].items()]
    rungs = ", ".join(map(str, its["rungs_at_epochs"]))
    varied = ", ".join(each["name"] for each in its["searched"]["parameters"])
    free = " x ".join(
        f"{count} {key.rpartition('.')[2]}" for key, count in its["answered_after_training"].items()
    )
    known = "unknown until a training of this sweep has ended"
    if time is not None:
        known = f"at most {duration(time['seconds'])}, one trial at a time, by {time['trainings']} trainings"
    lines = {
        "sweep": f"{its['name']}: {its['score']} ({its['mode']}), {its['sampler']}, {its['scheduler']}",
        "trials": " and ".join([str(its["trials"]), *searched]),
        "fresh seeds": f"at most {its['most_confirmation_runs']} trainings",
        "baselines": ", ".join(its["baselines"]) or "none",
        "epochs": f"at most {its['most_epochs']:,}; {its['most_epochs_each']} a training, "
        f"{training['steps_per_epoch']:,} steps each" + (f"; pruned at epoch {rungs}" if rungs else ""),
        "time": known + (f"; budget {its['budget']}" if its["budget"] else ""),
        "data": f"{data['name']}: {data['train']:,} training and {data['validation']:,} validation rows",
        "varied": varied or "nothing",
        "after training": f"{free} of the neighbours" if free else "nothing is left to choose",
        "writes": f"{tree['writes']['folder']}; tracking {tree['writes']['tracking']}",
    }
    width = max(map(len, lines))
    return [f"{name:{width}}  {text}" for name, text in lines.items()]
