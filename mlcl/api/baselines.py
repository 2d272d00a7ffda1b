"""`mlcl.baseline`: fits linear models and nearest neighbours to a user's data, and returns their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcl.api.common import Say, home_of, print_line, silent
from mlcl.api.comparing import user_data

if TYPE_CHECKING:
    import pandas as pd


def baseline(
    data: Any,
    *,
    names: Sequence[str] = (),
    home: str | Path | None = None,
    progress: Say = print_line,
    **columns: Any,
) -> pd.DataFrame:
    """Fits baselines to data, as `mlcl baseline` does: C, threshold and k are chosen on validation.

    Args:
        data: A path, a DataFrame, a Dataset of Hugging Face, a mapping of column names to values, or a list
            of texts, images or vectors, as for `mlcl.prepare`.
        names: Names of `mlcl baselines`. Default: all that can be fitted to the data.
        home: The folder of results. Default: MLCL_HOME, else `outputs`.
        progress: A function that is called with each line of progress; None prints nothing.
        columns: The roles of the columns, see `mlcl.prepare`.

    Returns:
        A row for each baseline, the best on validation first: its state, id and metrics. `frame.attrs` has
        the metric that orders the rows (`metric`), why baselines were left out (`left_out`), and the name of
        the best (`best`), over several draws of the validation rows where these are few.

    Raises:
        UserError: The data or a name cannot be used. It is raised before anything is fitted.

    Example:
        >>> mlcl.baseline(frame, text="text", labels="topics")["test/micro_f1"]
        tfidf_svm       0.71
        ...
    """
    import pandas as pd

    from mlcl.api.progress import TrainingLines
    from mlcl.config import default_mode, load_job
    from mlcl.service.run_baselines import BaselinePlan, best_baseline, run_baselines
    from mlcl.training.baselines.jobs import dataset_job

    say, folder = progress or silent, home_of(home)
    its = user_data(data, columns, folder)
    space = columns.get("labels") if not its.options else None  # of a prepared data set it is a label space
    job = load_job(dataset_job(its.folder, space if isinstance(space, str) else None))
    given = [names] if isinstance(names, str) else list(names)
    plan = BaselinePlan.of(job, given, folder)
    found = run_baselines(plan, home=folder, listener=TrainingLines(say), announce=say)
    rows = {name: {"state": str(its.state), "id": its.id, **its.metrics} for name, its in found.items()}
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("baseline")
    metric = job.evaluation.metric
    if metric in frame:
        frame = frame.sort_values(metric, ascending=default_mode(metric) == "min", kind="stable")
    best, _ = best_baseline(plan, found, home=folder, announce=say)
    frame.attrs |= {"metric": metric, "left_out": dict(plan.left_out), "best": best}
    return frame
