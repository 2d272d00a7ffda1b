"""Reads and checks the files that users write: jobs, spaces, tables and cluster files."""

from mlcl.config.job import (
    MARGIN,
    AugmentConfig,
    JobConfig,
    KnnConfig,
    ProbeConfig,
    covers,
    dump_job,
    flatten,
    job_hash,
)
from mlcl.config.loader import apply_overrides, job_yaml, load_job, parse_override, parse_setting, read_job
from mlcl.config.safe_yaml import read_yaml
from mlcl.config.space.keys import POSTHOC
from mlcl.config.space.loader import load_space
from mlcl.config.space.search import Goal, SearchConfig, default_mode
from mlcl.config.space.space import Parameter, Space, corners
from mlcl.config.training_sections import ClassifierConfig, HeadConfig

__all__ = [
    "MARGIN",
    "POSTHOC",
    "AugmentConfig",
    "ClassifierConfig",
    "Goal",
    "HeadConfig",
    "JobConfig",
    "KnnConfig",
    "Parameter",
    "ProbeConfig",
    "SearchConfig",
    "Space",
    "apply_overrides",
    "corners",
    "covers",
    "default_mode",
    "dump_job",
    "flatten",
    "job_hash",
    "job_yaml",
    "load_job",
    "load_space",
    "parse_override",
    "parse_setting",
    "read_job",
    "read_yaml",
]
