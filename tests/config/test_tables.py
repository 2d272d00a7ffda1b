"""Tests that shipped job and table files load, fit their data and have the figures of the papers."""

import functools
import re
from pathlib import Path

import pytest
import yaml

from mlcl.config import job_hash, load_job, read_yaml
from mlcl.config.section import validate
from mlcl.config.table.cells import cells_of
from mlcl.config.table.schema import Table, find_table, load_table, slug, table_files
from mlcl.data import DatasetInfo, LabelSpace
from mlcl.data.format import Shard
from mlcl.data.sources import find_source
from mlcl.data.sources.beeradvocate import REVIEWS as BEERADVOCATE
from mlcl.data.sources.tripadvisor import REVIEWS as TRIPADVISOR
from mlcl.evaluation import embedding_metrics, metric_names
from mlcl.models.encoders.resnet import ResNetConfig
from mlcl.training.checks import check_job

ROOT = Path(__file__).resolve().parents[2]
JOBS = sorted((ROOT / "jobs").glob("*.yaml"))
TABLES = table_files(ROOT / "tables")
CASES = [(file, scale) for file in TABLES for scale in (None, *load_table(file).scales)]

PRINTED = {
    "simdis-table1": (36, 2472.31),
    "simdis-table2": (16, 1077.67),
    "simdis-table4": (180, 11750.92),
    "simdis-table5": (180, 13870.53),
    "mlcl-table2": (11, 811.96),
    "mlcl-table3": (24, 1247.02),
    "mlcl-table4": (24, 1728.45),
    "mlcl-table5": (64, 3090.3),
    "mlcl-table6": (8, 665.75),
    "knn-table3": (24, 970.266),
    "knn-table4": (24, 1898.32),
    "knn-table5": (12, 957.08),
    "knn-table6": (12, 901.7),
}
"""The number of figures in each table of the papers, and their sum; curves and our own tables have none."""

# A few cells of each table, typed a second time; knn-table3 has the Hamming loss in percent.
SECOND_READING = """
simdis-table1: ALL | MS-COCO | 68.93 63.32 64.11; ANY | NUS-WIDE | 68.42 50.65 49.28
simdis-table1: MulSupCon | PASCAL | 82.75 80.26 79.58; Ours | MS-COCO | 73.4 70.03 69.2
simdis-table2: ANY | Llama | 73.41 59.63; Ours | RoBERTa | 74.54 62.31
simdis-table4: RoBERTa ANY | MIMIC-III-Full | 88.15 94.18 7.13 51.35 68.92
simdis-table4: Llama Ours | MIMIC-IV-ICD9-Full | 95.14 99.58 13.37 59.69 67.14
simdis-table4: PLM-ICD MulSupCon | MIMIC-IV-ICD10-Full | 92.83 99.38 5.43 58.15 70.19
simdis-table5: RoBERTa Ours | MIMIC-III-50 | 88.86 93.14 60.03 62.43 62.06
simdis-table5: Llama ANY | MIMIC-IV-ICD10-50 | 91.89 93.97 65.82 69.09 61.12
simdis-table5: PLM-ICD ALL | MIMIC-IV-ICD9-50 | 95.18 96.42 71.31 75.83 62.45
mlcl-table2: CIFAR-100 | SimCLR | 70.7; CIFAR-100 | HiMulConE | -; CIFAR-100 | MLCL | 77.7
mlcl-table2: DeepFashion | Guided | 72.61
mlcl-table3: 1,000 | MLCL | 34.74; 5,000 | CE | 21.56; 20,000 | SupCon | 65.21; 40,000 | SimCLR | 63.21
mlcl-table4: TripAdvisor 30 | MLCL | 72.9; TripAdvisor 180 | CE | 77
mlcl-table4: BeerAdvocate 60 | MLCL w/o global | 66.71; BeerAdvocate 360 | MLCL | 71.81
mlcl-table5: TripAdvisor 60 | CE 70 % | 40.4; TripAdvisor 600 | MLCL 80 % | 40.24
mlcl-table5: BeerAdvocate 60 | CE 80 % | 34.3; BeerAdvocate 360 | MLCL 50 % | 54.83
mlcl-table6: 50K | SupCon | 85.97; 20K | MLCL | 79.44
knn-table3: CNN | AAPD | 2.378 69.6; LDGN | RCV1-V2 | 0.863 86; BERT+ours | RCV1-V2 | 0.715 88.36
knn-table4: CNN+CL | AAPD | 69.43; LDGN+kNN | RCV1-V2 | 86.76; BERT+CL+kNN | AAPD | 75.18
knn-table5: LDGN | RCV1-V2 w/o beta | 86.78; BERT | AAPD w/ beta | 75.18
knn-table6: CNN | AAPD w/o CL | 64.5; BERT | RCV1-V2 w/ CL | 86.4
"""

TWENTY = tuple(map(str, range(20)))
SINGLE, LABELS = (LabelSpace(kind=kind, classes=TWENTY) for kind in ("single", "multi_label"))


def levels(*names):
    return dict.fromkeys(names, SINGLE) | {"path": LabelSpace(kind="hierarchy", levels=names)}


def several_paths(*names):
    tree = LabelSpace(kind="hierarchy", levels=names, parents=(tuple(range(20)),) * (len(names) - 1))
    return dict.fromkeys(names, LABELS) | {"path": tree}


SPACES = {
    "icd10cm": ("text", levels("chapter", "section")),
    "digits": ("image", {"digits": LABELS}),
    "scenes": ("image", {"digits": LABELS}),
    "cifar10": ("image", {"class": SINGLE}),
    "cifar100": ("image", levels("coarse", "fine")),
    "deepfashion": ("image", levels("type", "category")),
    "voc2007": ("image", {"objects": LABELS}),
    "coco": ("image", {"objects": LABELS}),
    "nuswide": ("image", {"concepts": LABELS}),
    "tripadvisor": ("text", TRIPADVISOR.spaces()),
    "beeradvocate": ("text", BEERADVOCATE.spaces()),
    "aapd": ("text", {"subjects": LABELS}),
    "rcv1": ("text", {"topics": LABELS}),
    "reuters21578": ("text", {"topics": LABELS}),
    "goemotions": ("text", several_paths("sentiment", "ekman", "emotion")),
    "parquet": ("text", {"chapter": LABELS, "category": LABELS, "subject": LABELS}),
    "parquet of images": ("vectors", {**levels("coarse", "fine"), "garment": LABELS, "kind": LABELS}),
    "mimic3": ("text", several_paths("chapters", "codes")),
    "mimic4": ("text", several_paths("chapters", "codes")),
}
"""The modality and label spaces of each source, with twenty classes each."""


def described(data):
    source = data.source
    modality, spaces = SPACES["parquet of images" if "vectors" in data.options else source]
    return DatasetInfo(
        name=source,
        modality=modality,
        dim=8 if modality == "vectors" else None,
        label_spaces=spaces,
        rows={"train": 1, "validation": 1, "test": 1},
        source="test",
        licence="none",
        shards=(Shard(file="rows.parquet", rows=3, sha256="0" * 64),),
    )


def fitted(job):
    """Returns the task of a job on its source and checks the source's options; weight files may be absent."""
    source = find_source(job.data.source)
    input_options = {"path": "here"} if source.needs_input else {}
    validate(source.options, {**input_options, **job.data.options}, None)
    if isinstance(job.encoder, ResNetConfig):
        job = job.model_copy(update={"encoder": job.encoder.model_copy(update={"weights": None})})
    return check_job(job, described(job.data))


@functools.cache
def cells(name):
    """Returns the cells of a table with one seed each."""
    file = find_table(name, ROOT / "tables")
    return {(cell.row, cell.column): cell for cell in cells_of(load_table(file), file, seeds=1)}


@pytest.mark.parametrize("file", JOBS, ids=lambda file: file.stem)
def test_a_job_file_fits_its_data_set_and_names_its_command(file):
    commands = re.findall(rf"^#   mlcl run jobs/{file.name}(.*?)$", file.read_text(), re.MULTILINE)
    assert commands
    for overrides in commands:
        assert fitted(load_job(file, overrides.split())) in ("single", "multi_label", "aspects")


@pytest.mark.parametrize(("file", "scale"), CASES, ids=lambda value: getattr(value, "stem", value))
def test_every_cell_of_a_table_fits_its_data_set(file, scale):
    table_cells = cells_of(load_table(file), file, scale=scale, seeds=1)
    assert len({cell.id for cell in table_cells}) == len(table_cells)
    for cell in table_cells:
        job = cell.jobs[0]
        task = fitted(job)
        info = described(job.data)
        known_names = {*metric_names(task, n_labels=20, groups=job.evaluation.metrics), "neighbour_overlap"}
        known_names |= {metric.name for metric in embedding_metrics(job.evaluation.metrics)}
        known_names |= {f"accuracy_{level}" for space in info.label_spaces.values() for level in space.levels}
        for figure in cell.figures:
            assert figure.metric.rpartition("/")[2] in known_names
            assert figure.metric.startswith("knn/") <= (job.evaluation.knn is not None)
            assert figure.metric.startswith("transfer/") == (job.evaluation.transfer_to is not None)


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_a_table_has_the_figures_that_the_paper_prints(file):
    figures = [figure for cell in cells(file.stem).values() for figure in cell.figures]
    printed_values = [figure.printed for figure in figures if figure.printed is not None]
    assert (len(printed_values), round(sum(printed_values), 4)) == PRINTED.get(file.stem, (0, 0))
    assert f"\n#   mlcl reproduce {file.stem}" in file.read_text()


def test_the_printed_figures_are_the_papers():
    readings = [line.split(": ", 1) for line in SECOND_READING.strip().splitlines()]
    for table, row, column, values in (
        (t, *c.split(" | ")) for t, entries in readings for c in entries.split("; ")
    ):
        expected = [None if value == "-" else float(value) for value in values.split()]
        actual = [figure.printed for figure in cells(table)[row, column].figures]
        assert actual == pytest.approx(expected), (table, row, column)
    assert {table for table, _ in readings} == PRINTED.keys()


def test_the_review_tables_draw_samples_and_noise_anew_for_each_seed():
    for name, *cell in (
        ("mlcl-table4", "TripAdvisor 30", "MLCL"),
        ("mlcl-table5", "BeerAdvocate 60", "CE 30 %"),
    ):
        file = find_table(name, ROOT / "tables")
        (table_cell,) = cells_of(load_table(file), file, only=["/".join(map(slug, cell))])
        assert [job.train.seed for job in table_cell.jobs] == list(range(10))
        assert [job.data.subset.seed for job in table_cell.jobs] == list(range(10))
    assert [job.data.label_noise.seed for job in table_cell.jobs] == list(range(10))


@pytest.mark.parametrize("row", ["TripAdvisor 60", "BeerAdvocate 60"])
def test_under_noise_the_global_head_has_most_of_the_weight(row):
    (job,) = cells("mlcl-table5")[row, "MLCL 70 %"].jobs
    weights = {name: head.weight for name, head in job.objective.heads.items()}
    assert weights.pop("global") == 0.6
    assert sum(weights.values()) == pytest.approx(0.2, abs=1e-3)
    assert job.objective.classifier_weight == pytest.approx(0.2, abs=1e-3)
    assert job.data.label_noise.rate == 0.7


@pytest.mark.parametrize(("table", "column"), [("mlcl-table2", "CE"), ("mlcl-table4", "CE")])
def test_the_baseline_is_the_classifier_alone(table, column):
    baselines = [cell.jobs[0].objective for (_, name), cell in cells(table).items() if name == column]
    assert baselines
    for objective in baselines:
        assert (objective.heads, objective.classifier_weight) == ({}, 1)


def test_supcon_is_mlcl_without_its_superclass_head():
    table_cells = cells("mlcl-table2")
    supcon = table_cells["CIFAR-100", "SupCon"].jobs[0].objective.heads
    mlcl = table_cells["CIFAR-100", "MLCL"].jobs[0].objective.heads
    assert supcon.keys() == {"subclass"}
    assert mlcl["subclass"].model_copy(update={"weight": 1.0}) == supcon["subclass"]


def test_neighbours_cost_no_training():
    ablation = cells("knn-table4")
    for column in ("AAPD", "RCV1-V2"):
        for row in ("CNN", "LDGN", "BERT", "CNN+CL", "LDGN+CL", "BERT+CL"):
            assert ablation[row, column].jobs == ablation[f"{row}+kNN", column].jobs
    curve = cells("knn-figure2")
    assert len({job_hash(job) for cell in curve.values() for job in cell.jobs}) == 3


def test_baselines_have_the_seeds_of_the_picks_beside_them():
    file = find_table("leaderboard-classes", ROOT / "tables")
    table_cells = {(cell.row, cell.column): cell for cell in cells_of(load_table(file), file)}
    baseline = table_cells["TF-IDF SVM", "ICD-10-CM 20"].jobs
    assert [job.train.seed for job in baseline] == [1, 2, 1001, 1002, 2001, 2002]
    assert [job.data.subset.seed for job in baseline] == [1, 2, 1001, 1002, 2001, 2002]
    assert [job.train.seed for job in table_cells["supcon", "ICD-10-CM 20"].jobs] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("name", "held"), [("labels", 2), ("classes", 1)])
def test_a_leaderboard_searches_all_methods_alike(name, held):
    name = f"leaderboard-{name}"
    table = load_table(find_table(name, ROOT / "tables"))
    tunings = [cell.tuning for cell in cells(name).values() if cell.tuning is not None]
    control, followers = table.ranks.control, [tuning for tuning in tunings if tuning.control is not None]
    assert len(tunings) - len(followers) == len(table.columns)
    assert {tuning.control for tuning in followers} == {control}
    assert {tuning.start for tuning in followers} == {table.tune.start}
    control_rows = {row for (row, _), cell in cells(name).items() if cell.tuning and not cell.tuning.hold}
    assert control_rows == {control}
    assert {len(tuning.hold) for tuning in followers} <= {1, held}
    assert {(tuning.searches, tuning.trials, tuning.race_seeds, tuning.confirm) for tuning in tunings} == {
        (3, 18, 1, 2)
    }
    assert {line.tune.seeds for line in table.rows.values() if line.tune} | {table.tune.seeds} == {6}
    spaces = {tuning.text: yaml.safe_load(tuning.text) for tuning in tunings}.values()
    assert len(spaces) > 2
    shared_settings = [
        {key: value for key, value in s["space"].items() if not key.startswith("objective")} for s in spaces
    ]
    assert all(settings == shared_settings[0] for settings in shared_settings)
    assert all(space["search"] == {"sampler": "tpe", "scheduler": "none"} for space in spaces)


def test_the_page_of_tables_tells_of_each_and_its_example_loads(tmp_path):
    page = (ROOT / "docs" / "tables.md").read_text()
    first_columns = re.findall(r"^\| (`.*?`) \|", page.partition("## The tables")[2], re.MULTILINE)
    names = [name for column in first_columns for name in re.findall(r"`([\w-]+)`", column)]
    assert sorted(names) == sorted(file.stem for file in TABLES)
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "tables").mkdir()
    file = tmp_path / "tables" / "example.yaml"
    file.write_text(example.replace("../jobs/", f"{ROOT}/jobs/"))
    table = validate(Table, read_yaml(file), file)
    assert len(cells_of(table, file)) == 4
    assert len(cells_of(table, file, scale="small")) == 2
