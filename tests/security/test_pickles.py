"""Tests that commands never load a hostile pickle that takes the place of a file they read.

tests/training/test_checkpoint.py tests checkpoints, and tests/models/test_pretrained.py pretrained weights.
"""

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from builders import tiny_job
from ledgers import new_ledger
from optuna.distributions import distribution_to_json
from security.hostile import Hostile

from mlcl.config import Goal, SearchConfig
from mlcl.config.space.domains import Float
from mlcl.config.space.space import Parameter, Space
from mlcl.errors import UserError
from mlcl.evaluation import Setting
from mlcl.service.engine.entries import End, SpaceVersion, Training
from mlcl.service.search.sampling import distributions
from mlcl.service.search.study import draw_trial
from mlcl.tracking import State
from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS
from mlcl.training.stored_run import StoredRun


@pytest.fixture
def ran(tmp_path):
    """Returns the path of the file that the hostile pickle would create."""
    return tmp_path / "ran"


@pytest.fixture
def hostile(ran):
    """Returns a pickle that creates the file `ran`, after a check that loading it does so."""
    text = pickle.dumps(Hostile(ran))
    pickle.loads(text).close()
    ran.unlink()
    return text


SEARCHED = Space(
    (Parameter("x", Float(0.0, 1.0)), Parameter("y", Float(0.0, 1.0))),
    {},
    SearchConfig(sampler="cmaes", startup=3),
    (Goal("val/accuracy", "max"),),
    Goal("val/accuracy", "max"),
)


def drawn(ledger):
    """Draws one more trial with CMA-ES and records it in the ledger as complete."""
    (version,), trials = ledger.versions(), ledger.trials()
    settings, trial = draw_trial(SEARCHED, version, trials, len(trials))
    training = Training(f"t{len(trials)}", "", {}, settings, number=len(trials), params=trial.params)
    ledger.open(replace(training, system_attrs=trial.system_attrs))
    ledger.close(f"t{len(trials)}", End(State.COMPLETE, values=[sum(trial.params.values())]))


@pytest.mark.parametrize("damaged", [False, True])
def test_the_state_of_cmaes_in_a_ledger_that_others_write_to(tmp_path, ran, hostile, damaged):
    ledger = new_ledger(tmp_path / "sweeps" / "id")
    json_distributions = {
        name: distribution_to_json(distribution) for name, distribution in distributions(SEARCHED).items()
    }
    ledger.open_version(SpaceVersion(0, "", "", json_distributions, ("max",), {}, {}))
    for _ in range(17):
        drawn(ledger)
    n_changed = 0
    for entry in ledger.trials():
        for key in entry.system_attrs:
            if ":optimizer:" in key:
                entry.system_attrs[key] = "zz" if damaged else hostile.hex()
                n_changed += 1
    assert n_changed > 0
    with pytest.raises(UserError, match=r"stored state of CMA-ES cannot be read; --fresh"):
        drawn(ledger)
    assert not ran.exists()


def arrays_of_objects(file, hostile):
    """Writes a `.npy` file of objects, which NumPy reads by loading the pickle in it."""
    with file.open("wb") as target:
        np.lib.format.write_array_header_1_0(target, {"descr": "|O", "fortran_order": False, "shape": (1,)})
        target.write(hostile)


def test_caches_of_tokens(tiny, tmp_path, ran, hostile):
    job_data = JobData.of(tiny_job(tiny), tmp_path)
    rows = job_data.encode(job_data.train)
    files = list((tmp_path / "cache" / "tokens").glob("*/*.npy"))
    assert len(files) == 2
    for file in files:
        arrays_of_objects(file, hostile)
    new_rows = JobData.of(tiny_job(tiny), tmp_path).encode(job_data.train)
    assert not ran.exists()
    assert len(new_rows) == len(rows)
    assert all(np.load(file, allow_pickle=False).dtype != object for file in files)


def test_a_stored_model_s_embeddings(tiny, tmp_path, ran, hostile):
    job = tiny_job(tiny, epochs=1)
    job_data, folder = JobData.of(job, tmp_path), tmp_path / "run"
    run_experiment(job_data, folder=folder, context=Context(torch.device("cpu")), listener=lambda _: None)
    file = folder / EMBEDDINGS
    embeddings = pq.read_table(file)
    blobs = pa.array([hostile] * len(embeddings))
    ragged_rows = pa.array([[0.0] * (i % 3) for i in range(len(embeddings))])
    index = embeddings.column_names.index("embedding")
    for table in (
        embeddings.set_column(index, "embedding", blobs),
        embeddings.set_column(index, "embedding", ragged_rows),
        embeddings.drop_columns("embedding"),
    ):
        pq.write_table(table, file)
        with pytest.raises(UserError, match=r"embeddings\.parquet: not the embeddings of a run"):
            StoredRun.read(folder, job_data).metrics(Setting(1, 1.0, 1.0))
    file.write_bytes(hostile)
    with pytest.raises(UserError, match="cannot be read"):
        StoredRun.read(folder, job_data).metrics(Setting(1, 1.0, 1.0))
    assert not ran.exists()
