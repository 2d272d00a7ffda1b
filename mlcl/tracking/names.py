"""The names of tags, parameters, metrics and artifacts in MLflow. Existing stores have them: keep them."""

from __future__ import annotations

from mlcl.backports import StrEnum
from mlcl.store import State

MAX_PARAM = 6000
"""The length in characters of the longest parameter value that MLflow's stores keep."""
MAX_REASON = 5000
"""The length in characters to which a state's reason is cut: MLflow allows slightly longer tags."""
MAX_NOTES = 4000
"""The total length in characters of the notes of a data set that are kept in a tag."""


class Tag(StrEnum):
    """The names of a run's tags in MLflow."""

    # Identity of a run
    KIND = "mlcl.kind"  # run (if the tag is missing), sweep, trial, confirmation, table or cell
    ID = "mlcl.id"  # the id of the run, sweep or table; of a confirmation, the name of its setting
    NAME = "mlcl.name"  # the name of a sweep or table
    KEY = "mlcl.key"  # a training's key in its sweep's ledger, such as trial-0003 or confirm-0-seed5
    TRIAL = "mlcl.trial"  # number of a search trial
    ORIGIN = "mlcl.origin"  # of a search trial: as written, asked for, control, prior or drawn
    SCOPE = "mlcl.scope"  # of a search trial: the tuned cell or baseline whose search it belongs to
    CELL = "mlcl.cell"  # "ROW, COLUMN, seed N" of a table's training
    LOG = "mlcl.log"  # id of the log that is delivered to this run
    OWNER = "mlcl.owner"  # id of the run, sweep or table whose process sets the state
    PARENT = "mlflow.parentRunId"  # MLflow's id of the run that this one is nested in
    NOTE = "mlflow.note.content"  # the description, Markdown

    # State and cost
    STATE = "mlcl.state"  # one of State
    REASON = "mlcl.reason"  # why a run has its state; missing or empty if there is no reason
    DROPPED = "mlcl.dropped"  # why a trial does not fit the sweep's latest space; empty if it does
    CANDIDATE = "mlcl.candidate"  # what a confirmed setting is: a baseline, as written, best found, ...
    SECONDS = "mlcl.seconds"  # wall-clock time of a training over all sessions
    CPU_SECONDS = "mlcl.cpu_seconds"  # wall-clock time, times the CPUs that the training held
    GPU_SECONDS = "mlcl.gpu_seconds"  # wall-clock time, times the GPUs that the training held

    # Inputs
    SEED = "mlcl.seed"  # train.seed
    JOB_HASH = "mlcl.job_hash"  # digest of the resolved job
    LOWER_IS_BETTER = "mlcl.lower_is_better"  # JSON: metrics for which lower is better; NAME_* for aspects
    DATA = "mlcl.data"  # name of the data set
    FINGERPRINT = "mlcl.data_fingerprint"  # digest of the data set with its split
    STORED_FINGERPRINT = "mlcl.stored_fingerprint"  # digest of the data set before validation is redrawn
    ROWS = "mlcl.data_rows"  # JSON: the rows of each split
    DATA_NOTES = "mlcl.data_notes"  # JSON: the data set's notes; missing if it has none
    SOURCE_NAME = "mlflow.source.name"  # the program
    SOURCE_TYPE = "mlflow.source.type"  # LOCAL
    COMMIT = "mlflow.source.git.commit"  # commit of the code
    DIRTY = "mlcl.git.dirty"  # true if there were uncommitted changes
    LIBRARIES = "mlcl.libraries"  # versions of the libraries that metrics depend on
    PYTHON = "mlcl.python"  # version of the interpreter
    MACHINE = "mlcl.machine"  # the processor's architecture
    JOB = "mlcl.job"  # id of the cluster job
    CODE = "mlcl.code"  # of a sweep or table: the code of each command, if it changed between commands
    COMMAND = "mlcl.command"  # the command that made a table

    # Sweeps
    SWEEP_TRIALS = "mlcl.sweep.trials"  # how many search trials were asked for
    SWEEP_SEEDS = "mlcl.sweep.seeds"  # how many fresh seeds were asked for
    SWEEP_CONFIRM = "mlcl.sweep.confirm"  # how many settings were to be confirmed
    SWEEP_GENERATION = "mlcl.sweep.generation"  # number of the latest space, from 0
    SWEEP_BUDGET = "mlcl.sweep.asked_budget"  # the budget as it was typed; empty without one
    SWEEP_GOALS = "mlcl.sweep.goals"  # JSON: a list of [metric, max or min]
    SWEEP_SPENT = "mlcl.sweep.spent"  # the used part of the budget
    SWEEP_VERDICT = (
        "mlcl.sweep.verdict"  # heads against control, best against best baseline; empty if unknown
    )
    BEST = "mlcl.best"  # name of the best trial
    BEST_RUN_ID = "mlcl.best_run_id"  # MLflow's id of the best trial

    # Tables
    SOURCE = "mlcl.source"  # the paper and the table in it
    OUTSIDE = "mlcl.outside"  # how many of its figures are out of tolerance
    TOLERANCE = "mlcl.tolerance"  # the tolerance of each figure, as NAME VALUE, NAME VALUE


VERSION_TAG = "mlcl.version."
"""The prefix of the tag with a package's version, before the package's name. Old runs have several."""


def count_tag(state: str) -> str:
    """Returns the name of the tag with the number of a sweep's trials in this state."""
    return f"mlcl.sweep.{state.lower()}"


# Parameters
LOG10 = "log10."
"""The prefix of a parameter that is the decimal logarithm of the parameter named after it."""
CLASSIFIER_WEIGHT = "objective.classifier.weight_value"
"""The parameter with the classifier's weight: the job's value, or 1 minus the weights of the heads."""
GAMMA = "gamma"
"""The parameter with the weight of all heads together, 1 minus the classifier's: gamma in the papers."""
MIX = (CLASSIFIER_WEIGHT, "alpha.classifier", GAMMA)
"""The parameters that follow from the weights of the heads."""
SHORT = {
    r"objective\.heads\.(.+)\.temperature(\.\d+)?": r"tau.\1\2",
    r"objective\.heads\.([^.]+)\.weight": r"alpha.\1",
    r"objective\.classifier\.weight_value": "alpha.classifier",
    r"evaluation\.knn\.(k|lambda)": r"\1",
    r"evaluation\.knn\.temperature": "tau",
}
"""Patterns of job keys, with the papers' short names. A parameter with the short name has the key's value
rounded to four digits, for MLflow's pages."""
SWEEP_SCORE, SWEEP_MODE = "sweep.score", "sweep.mode"
"""The parameters of a sweep with the metric by which it ranks trials, and with max or min."""

# Metrics.
SCORE = "score"
"""The metric of a training with the value by which its sweep ranks it."""
RUNG = "rung/"
"""The prefix of a trial's metric at the largest epoch that all trials reached: `rung/10/accuracy`."""
SWEEP_BEST = "sweep/best"
"""The metric of a sweep with the best score so far; its step is the number of trials that have ended."""

# Artifacts.
BEST_SETTINGS = "best_settings.json"
"""The artifact with the settings of a sweep's best trial."""
DIFF = "provenance/uncommitted.diff"
"""The artifact with the uncommitted changes of the code."""
PACKAGES = "provenance/packages.txt"
"""The artifact with all installed packages and their versions, one per line."""
SWEEP_JSON = "sweep.json"
"""The artifact with the result of a sweep (`SweepResult`)."""
TABLE_JSON, TABLE_MARKDOWN, TABLE_LATEX = "table.json", "table.md", "table.tex"
"""The artifacts with the result of a table (`TableResult`), and its figures as Markdown and LaTeX."""
TABLE_TRIALS = "trials.parquet"
"""The artifact with the trials, races and fresh seeds of a table's tuned cells."""


def space_file(generation: int) -> str:
    """Returns the name of the artifact with a sweep's space; `generation` numbers its spaces from 0."""
    return "space.yaml" if generation == 0 else f"space-{generation}.yaml"


MLFLOW_STATUS = {
    State.RUNNING: "RUNNING",
    State.COMPLETE: "FINISHED",
    State.PRUNED: "KILLED",
    State.FAILED: "FAILED",
    State.BUDGET: "KILLED",
    State.STOPPED: "KILLED",
}
"""MLflow's status of a run for each state. MLflow has fewer; the tag `mlcl.state` has the exact state."""
