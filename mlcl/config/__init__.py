"""What a person writes: the job and the space file, checked before anything starts."""

from mlcl.config.job import (
    AugmentConfig,
    ClassifierConfig,
    DataConfig,
    EncoderConfig,
    EvaluationConfig,
    HeadConfig,
    JobConfig,
    KnnConfig,
    ObjectiveConfig,
    ProbeConfig,
    TrainConfig,
    dump_job,
    flatten,
    job_hash,
)
from mlcl.config.load import apply_overrides, load_job, parse_override, read_yaml
from mlcl.config.space import Choice, Float, Int, Parameter, SearchConfig, Simplex, Space, load_space

__all__ = [
    "AugmentConfig",
    "Choice",
    "ClassifierConfig",
    "DataConfig",
    "EncoderConfig",
    "EvaluationConfig",
    "Float",
    "HeadConfig",
    "Int",
    "JobConfig",
    "KnnConfig",
    "ObjectiveConfig",
    "Parameter",
    "ProbeConfig",
    "SearchConfig",
    "Simplex",
    "Space",
    "TrainConfig",
    "apply_overrides",
    "dump_job",
    "flatten",
    "job_hash",
    "load_job",
    "load_space",
    "parse_override",
    "read_yaml",
]
