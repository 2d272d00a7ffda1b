"""The files that a person writes: job, space, table and cluster, checked before anything starts."""

from mlcl.config.job import (
    AugmentConfig,
    JobConfig,
    KnnConfig,
    ProbeConfig,
    covers,
    dump_job,
    flatten,
    job_hash,
)
from mlcl.config.loader import apply_overrides, load_job, parse_override, read_job
from mlcl.config.safe_yaml import read_yaml
from mlcl.config.space import (
    POSTHOC,
    Choice,
    Float,
    Goal,
    Int,
    Parameter,
    SearchConfig,
    Simplex,
    Space,
    corners,
    default_mode,
    load_space,
)
from mlcl.config.training_sections import ClassifierConfig, HeadConfig

__all__ = [
    "POSTHOC",
    "AugmentConfig",
    "Choice",
    "ClassifierConfig",
    "Float",
    "Goal",
    "HeadConfig",
    "Int",
    "JobConfig",
    "KnnConfig",
    "Parameter",
    "ProbeConfig",
    "SearchConfig",
    "Simplex",
    "Space",
    "apply_overrides",
    "corners",
    "covers",
    "default_mode",
    "dump_job",
    "flatten",
    "job_hash",
    "load_job",
    "load_space",
    "parse_override",
    "read_job",
    "read_yaml",
]
