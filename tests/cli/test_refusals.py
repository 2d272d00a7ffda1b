"""Tests that bad input to any command gives one line and exit status 2, and writes and starts nothing."""

import shlex
import shutil

import pytest
import torch
import yaml
from builders import job_tree
from commands import mlcl

from mlcl.plugins import REGISTRIES, registry

TOPIC = "objective.heads.topic.temperature"
REFUSED = [
    ("run absent.yaml", "absent.yaml: no such file"),
    ("run empty.yaml", "empty.yaml: must be a mapping of keys; found: nothing"),
    ("run empty.yaml --print-config", "empty.yaml: must be a mapping of keys; found: nothing"),
    ("run based.yaml", "based.yaml, key base: no such file; found: absent.yaml"),
    ("run misspelt.yaml", "key train.epoch: unknown key; did you mean epochs"),
    ("run plugged.yaml", "dice.py, key plugins: is no valid Python; found: line 1: invalid syntax"),
    ("run damaged.yaml", ".parquet"),
    ("run job.yaml train.epoch=2", "error: key train.epoch: unknown key; did you mean epochs"),
    ("run job.yaml train.epoch=2 --print-config", "error: key train.epoch: unknown key"),
    ("run job.yaml nonsense", "not an override"),
    ("run job.yaml objective.heads.detail.labels=detial", "did you mean detail"),
    ("run job.yaml data.path=nowhere", "not a prepared data set"),
    ("run job.yaml 'encoder={name: cnn_image}'", "reads images"),
    ("run job.yaml 'encoder={name: transformer, model: ./nowhere}'", "nowhere"),
    ("run job.yaml evaluation.metric=val/f1", "no such metric"),
    pytest.param(
        *("run job.yaml train.device=cuda", "no GPU is visible"),
        marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU"),
    ),
    ("sweep job.yaml absent.yaml", "absent.yaml: no such file"),
    ("sweep job.yaml absent.yaml --print-config", "absent.yaml: no such file"),
    ("sweep job.yaml space.yaml --name 'a b'", "key --name"),
    ("sweep job.yaml space.yaml --name ../up", "key --name"),
    ("sweep job.yaml space.yaml --budget soon", "key --budget"),
    ("sweep job.yaml space.yaml --baseline a/same.yaml --baseline b/same.yaml", "key --baseline"),
    ("sweep job.yaml space.yaml --try train.lr=1", "key --try: is no key of the space"),
    (
        f"sweep job.yaml space.yaml --try {TOPIC}=9",
        f"key --try: the space does not have this setting: {TOPIC}",
    ),
    (f"sweep job.yaml space.yaml --try {TOPIC}=on --dry-run", f"key --try {TOPIC}: input should be a valid"),
    (f"sweep job.yaml space.yaml --try {TOPIC}=0.2,{TOPIC}=0.3", "key --try: sets a key twice"),
    ("sweep job.yaml space.yaml --try 0.2", "key --try: not an override"),
    ("space describe other.yaml job.yaml", "key space.objective.heads.neighbours.weight"),
    ("reproduce tabel", "key TABLE: no such table; did you mean table"),
    ("reproduce absent.yaml", "absent.yaml: no such file"),
    ("reproduce table --data coco", "key --data"),
    ("reproduce table --data =x", "key --data"),
    ("reproduce table --data a=x --data a=y", "key --data: has two places"),
    ("reproduce table --figures job.yaml/figures", "key --figures"),
    ("data prepare icd10", "did you mean icd10cm"),
    ("data check nowhere", "not a prepared data set"),
    ("data describe nowhere", "not a prepared data set"),
    ("init absent.csv --to new", "absent.csv: no such file"),
    ("init empty.yaml --to new", "empty.yaml"),
    ("init in.csv --labels txt --to new", "key labels: no such column; did you mean text"),
    ("init in.csv --names absent.txt --to new", "absent.txt, key names: no such file"),
    ("import nowhere", "key HOME: no home to import from; found: nowhere"),
    ("import empty.yaml", "key HOME: no home to import from; found: empty.yaml"),
    ("list --home job.yaml", "key --home: is a file; found: job.yaml"),
    ("show @last", "key NAME: nothing was run in this home yet"),
    ("show seek", "key NAME: no run, sweep or table has this name; found: seek"),
    ("show '' --home home", "key NAME: no run, sweep or table has this name"),
    ("sweep job.yaml space.yaml --name ''", "key --name: not a name"),
    ("sweep job.yaml space.yaml --warm-start absent --dry-run", "key --warm-start: no such sweep"),
    ("compare seek --metric '' --home home", "key --metric: names no metric"),
    ("show seak --home home", "did you mean seek"),
    ("show mlcl- --home home", "is the beginning of several names"),
    ("show seek --home home --study job.yaml", "key --study: already exists"),
    ("show seek --home home --study nowhere/copy", "key --study: cannot be written"),
    ("show @last --home home --study copy", "key --study: has no search"),
    ("open seek --home home", "allowed: mlcl report seek --home home"),
    ("open seek --home home --dashboard", "no MLflow server runs here"),
    ("compare seek --latex --markdown", "one form at a time"),
    ("report seek --quick --row 1", "key --row: is for plots that --quick leaves out"),
    ("effect seek temperature --home home", "ends several keys"),
    ("effect seek detail.temperatur --home home", "is not a number that varies"),
    ("effect @last lr --home home", "key SWEEP: is no sweep"),
    ('export "it\'s nothing" --home home', "names no run and no sweep"),
    ("export tiny --alias best", "key --alias: goes with --register; found: best"),
    ("predict nowhere in.csv", "not an exported model"),
    ("predict model absent.csv", "absent.csv: no such file or folder"),
    ("predict model in.csv --out out.xls", "not a file format that can be written"),
    ("predict model in.csv --predictor best", "no such predictor"),
    ("predict model in.csv --split test", "key split: is for data sets, and this is not one; found: test"),
    ("predict model in.csv --threshold 0.5", "key threshold: is for several labels"),
    ("predict model in.csv --out model/datastore.parquet", "would replace the input"),
    ("predict model in.csv --out in.csv", "would replace the input"),
    ("predict model bare.csv --out out.csv", "no such column"),
    ("predict model tiny --split dev", "no such split"),
    ("predict models:/tiny in.csv --home home", "names no model"),
    ("predict models:/tiny@loser in.csv --home home", "no such registered model"),
    ("predict models:/none/1 in.csv --home home", "no such registered model"),
    ("submit --cluster lab.yaml", "not a command to submit"),
    ("submit --cluster lab.yaml doctor", "not a command to submit"),
    ("submit --cluster lab.yaml run absent.yaml", "no such file"),
    ("submit --cluster lab.yaml run space.yaml", "unknown key"),
    ("submit --cluster lab.yaml run job.yaml train.epochs=none", "train.epochs"),
    ("submit --cluster lab.yaml run job.yaml --print-config", "not for a submitted command"),
    ("submit run job.yaml --cluster absent.yaml", "absent.yaml"),
    ("submit --cluster lab.yaml run /tmp/../etc/hostname", "hostname"),
    ("submit --cluster lab.yaml run job.yaml --gpus 1.5", "not a share of GPUs"),
    ("submit --cluster lab.yaml sweep job.yaml space.yaml --budget soon", "not an amount of time"),
    ("submit --cluster lab.yaml sweep job.yaml space.yaml --gpus 0 --budget 2gpu-h", "trials hold no GPU"),
    ("submit --cluster lab.yaml sweep job.yaml space.yaml --try train.seed=1", "is no key of the space"),
    ("submit --cluster lab.yaml sweep job.yaml space.yaml --control job.yaml --no-control", "excludes"),
    ("sweep job.yaml space.yaml --gpus 1.5 --dry-run", "not a share of GPUs"),
    ("submit --cluster lab.yaml reproduce no-such-table", "no such table"),
    ("submit --cluster lab.yaml reproduce", "needs a table"),
    *((f"{words} a", "no cluster is named") for words in ("stop", "resume", "logs", "status")),
    ("submit run job.yaml", "no cluster is named"),
]
"""Command lines and a part of their only line. `--home home` is a home with results; others have none."""
KINDS = ["losses", "encoders", "data sources", "metrics", "baselines"]


@pytest.fixture(scope="module", autouse=True)
def files(lab, tiny):
    """Writes files with one fault each."""
    folder, job = lab.folder, yaml.safe_dump(job_tree(tiny))
    shutil.copytree(tiny, folder / "damaged")
    shard = next((folder / "damaged").glob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-100])
    contents = {
        "empty.yaml": "", "based.yaml": "base: absent.yaml", "misspelt.yaml": job.replace("epochs", "epoch"),
        "dice.py": "def :", "plugged.yaml": f"{job}plugins: [dice.py]\n", "bare.csv": "id,body\n1,x\n",
        "damaged.yaml": yaml.safe_dump(job_tree(folder / "damaged")),
        "other.yaml": "space: {objective.heads.neighbours.weight: {float: [0, 1]}}",
    }  # fmt: skip
    for name, text in contents.items():
        (folder / name).write_text(text)
    (folder / "tiny").symlink_to(tiny)


@pytest.fixture
def here(lab, monkeypatch):
    monkeypatch.chdir(lab.folder)
    for name in ("MLFLOW_TRACKING_URI", "MLCL_HOME", "MLCL_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    return lambda: {path for path in lab.folder.rglob("*") if path.suffix not in (".lock", ".db-journal")}


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_bad_input_is_one_line_with_status_2(here, words, said):
    before = here()
    answer = mlcl(*shlex.split(words))
    (line,) = answer.err.splitlines()
    assert (answer.status, answer.out, line.startswith("error: "), said in line) == (2, "", True, True), (
        answer
    )
    assert here() == before


@pytest.mark.parametrize(
    "words",
    [
        "run job.yaml --jsn", "rnu job.yaml", "sweep job.yaml", "show", "reproduce table --seeds 0",
        "reproduce table --cpus 0", "reproduce table --gpus -1",
        "submit --cluster lab.yaml sweep job.yaml space.yaml --trialz 4",
    ],
)  # fmt: skip
def test_a_wrong_option_is_a_usage_error(here, words):
    before = here()
    answer = mlcl(*words.split())
    assert (answer.status, answer.out, "Usage" in answer.err) == (2, "", True), answer
    assert here() == before


def test_with_json_the_error_is_a_document(here):
    answer = mlcl("run", "misspelt.yaml", "--json")
    error = answer.json["error"]
    assert (error["key"], error["found"], error["file"]) == ("train.epoch", "epoch", "misspelt.yaml")
    assert (answer.status, "epochs" in error["allowed"]) == (2, True)


@pytest.mark.parametrize("words", KINDS)
def test_an_unknown_plugin_lists_the_nearest(words):
    name = next(iter(registry(words.split()[-1])))
    answer = mlcl(*words.split(), f"{name}x")
    assert (answer.status, f"did you mean {name}?; found: {name}x; allowed: " in answer.err) == (2, True)
    assert {kind.split()[-1] for kind in KINDS} == set(REGISTRIES)
