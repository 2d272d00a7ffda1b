"""Tests the cells of table files, and that each mistake in a file gives one clear error."""

from pathlib import Path

import pytest
import yaml
from builders import job_tree

from mlcl.config import dump_job, flatten
from mlcl.config.table.cells import cells_of
from mlcl.config.table.schema import find_table, load_table, slug, table_files
from mlcl.errors import UserError

SOURCE = {"data": {"source": "icd10cm", "options": {"level": 2}, "split_seed": 3}}
TABLE = yaml.safe_load("""
title: A table
experiment: exp
source: A paper, Table 1
job: job.yaml
metrics: {Acc: test/accuracy, F1: test/macro_f1}
tolerance: 0.5
seeds: 2
rows: {CE: {set: {objective.heads: {}}}, MLCL (ours): {}}
columns: {All: {}, 10 a class: {set: {data.subset.per_class: 10}}}
paper: {CE: {All: [71.5, null]}, MLCL (ours): {All: [72, 70.25], 10 a class: null}}
""")


class Files:
    """A folder with `table.yaml` and the jobs that it names."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "table.yaml"
        self.write("job", job_tree(Path("data")))

    def write(self, name, tree):
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))

    def cells(self, tree=None, **how):
        self.write("table", {**TABLE, **(tree or {})})
        return cells_of(load_table(self.file), self.file, **how)

    def error(self, tree=None, **how):
        with pytest.raises(UserError) as error:
            self.cells(tree, **how)
        assert "\n" not in error.value.line()
        return error.value


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def ids(cells):
    return [cell.id for cell in cells]


def changed(one, other):
    """Returns the keys in which two jobs differ."""
    one, other = flatten(dump_job(one)), flatten(dump_job(other))
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def test_every_row_and_column_is_a_cell_with_a_job_for_each_seed(files):
    cells = files.cells()
    assert ids(cells) == ["ce/all", "ce/10-a-class", "mlcl-ours/all", "mlcl-ours/10-a-class"]
    assert [len(cell.jobs) for cell in cells] == [2] * 4
    assert all(job.experiment == "exp" for cell in cells for job in cell.jobs)
    heads = [list(cell.jobs[0].objective.heads) for cell in cells]
    assert heads == [[], [], ["detail", "topic"], ["detail", "topic"]]
    assert cells[1].jobs[0].data.subset.per_class == 10
    printed_values = [[figure.printed for figure in cell.figures] for cell in cells]
    assert printed_values == [[71.5, None], [None, None], [72, 70.25], [None, None]]
    assert {f.name: f.metric for f in cells[0].figures} == TABLE["metrics"]


def test_seeds_vary_the_seed_keys_and_nothing_else(files):
    keys = ["train.seed", "data.subset.seed"]
    columns = {"10": {"set": {"data.subset.per_class": 10}}}
    (cell,) = files.cells({"seed_keys": keys, "columns": columns, "paper": {}}, only=["ce"], seeds=3)
    assert [(job.train.seed, job.data.subset.seed) for job in cell.jobs] == [(0, 0), (1, 1), (2, 2)]
    assert changed(cell.jobs[0], cell.jobs[2]) == set(keys)


def test_scale_column_and_row_have_the_last_word_in_this_order(files):
    epochs = {"set": {"train.epochs": 5, "train.lr": 0.5, "train.batch_size": 20}}
    tree = {
        "set": {"train.epochs": 2, "train.weight_decay": 0.25},
        "rows": {"a": epochs},
        "columns": {"b": {"set": {"train.epochs": 6, "train.lr": 0.25}}},
        "scales": {"small": {"about": "less", "seeds": 1, "set": {"train.epochs": 7}, "tolerance": 3}},
        "paper": {},
    }
    (cell,) = files.cells(tree, scale="small", overrides={"train.batch_size": 40})
    train = cell.jobs[0].train
    assert (train.epochs, train.lr, train.batch_size, train.weight_decay) == (7, 0.25, 40, 0.25)
    assert len(cell.jobs) == 1
    assert files.cells(tree)[0].jobs[0].train.epochs == 6


def test_a_row_may_leave_columns_out(files):
    rows = {"CE": {}, "MLCL (ours)": {"columns": ["10 a class"]}}
    scales = {"all": {"about": "one column", "columns": ["All"]}}
    tree = {"rows": rows, "paper": {}, "scales": scales}
    assert ids(files.cells(tree)) == ["ce/all", "ce/10-a-class", "mlcl-ours/10-a-class"]
    assert ids(files.cells(tree, scale="all")) == ["ce/all"]
    small = {"about": "less", "rows": ["MLCL (ours)"], "columns": ["10 a class"]}
    assert ids(files.cells({"scales": {"small": small}}, scale="small")) == ["mlcl-ours/10-a-class"]
    error = files.error(tree, only=["mlcl-ours/all"])
    assert (error.key, error.allowed) == ("--only", ["ce/all", "ce/10-a-class", "mlcl-ours/10-a-class"])
    scales["all"]["rows"] = ["MLCL (ours)"]
    error = files.error(tree, scale="all")
    assert (error.key, error.problem) == ("rows", "no row has a cell in these columns")


def test_names_in_braces_choose_the_job_file(files):
    files.write("wide", job_tree(Path("data"), epochs=9))
    tree = {
        "job": "{kind}.yaml",
        "rows": {"a": {"vars": {"kind": "job"}}, "b": {"vars": {"kind": "wide"}}},
        "columns": {"c": {}, "d": {"job": "job.yaml"}},
        "paper": {},
    }
    assert [cell.jobs[0].train.epochs for cell in files.cells(tree)] == [4, 4, 9, 4]

    # Keys are removed before others are set.
    encoder = {"drop": ["encoder"], "set": {"encoder.name": "cnn_text", "encoder.width": 5}}
    (cell,) = files.cells({"rows": {"a": encoder}, "columns": {"b": {}}, "paper": {}})
    assert (cell.jobs[0].encoder.width, cell.jobs[0].encoder.max_length) == (5, 128)


@pytest.mark.parametrize(
    ("only", "found"),
    [(["ce"], "ce/all ce/10-a-class"), (["all"], "ce/all mlcl-ours/all"),
     (["*/10*", "ce/all"], "ce/all ce/10-a-class mlcl-ours/10-a-class"),
     (["MLCL (ours)"], "mlcl-ours/all mlcl-ours/10-a-class"),
     (["MLCL-*"], "mlcl-ours/all mlcl-ours/10-a-class")],
)  # fmt: skip
def test_only_some_cells(files, only, found):
    assert " ".join(ids(files.cells(only=only))) == found


def test_data_is_a_sources_files_or_a_prepared_folder(files, tmp_path):
    files.write("job", job_tree(Path("x")) | SOURCE)
    raw_data = files.cells(data={"icd10cm": f"{tmp_path}/raw/"})[0].jobs[0].data
    assert (raw_data.source, raw_data.options) == ("icd10cm", {"level": 2, "path": f"{tmp_path}/raw"})
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "dataset.json").touch()
    prepared_data = files.cells(data={"icd10cm": str(tmp_path / "prepared")})[1].jobs[0].data
    assert (prepared_data.source, prepared_data.path) == (None, str(tmp_path / "prepared"))
    assert (prepared_data.options, prepared_data.split_seed, prepared_data.subset.per_class) == ({}, 0, 10)
    home_data = files.cells(data={"icd10cm": "~/raw"})[0].jobs[0].data
    assert home_data.options["path"] == str(Path.home() / "raw")
    bucket_data = files.cells(data={"icd10cm": "s3://bucket/set"})[0].jobs[0].data
    assert (bucket_data.source, bucket_data.path) == (None, "s3://bucket/set")


def test_data_of_cells_that_were_not_asked_for_are_no_mistake(files, tmp_path):
    columns = {"a": {}, "b": {"set": {"data": {"source": "digits"}}}}
    small_scale = {"small": {"about": "less", "columns": ["a"]}}
    tree = {"columns": columns, "scales": small_scale, "paper": {}}
    for options in ({"scale": "small"}, {"only": ["*/a"]}):
        assert len(files.cells(tree, data={"digits": str(tmp_path)}, **options)) == 2
    error = files.error(tree, data={"digit": str(tmp_path)})
    assert (error.key, error.found, error.allowed) == ("--data", "digit", ["digits", "a", "b"])


def test_columns_of_one_source_have_files_of_their_own_but_no_folder_for_several_versions(files, tmp_path):
    files.write("job", job_tree(Path("x")) | SOURCE)
    cells = files.cells(data={"icd10cm": "/all", "10-a-class": "/ten"})
    places = {cell.column: cell.jobs[0].data.options["path"] for cell in cells}
    assert places == {"All": "/all", "10 a class": "/ten"}
    tree = {"columns": {"a": {}, "b": {"set": {"data.options.level": 1}}}, "paper": {}}
    folders = {"icd10cm": str(tmp_path)}
    assert len(files.cells(tree, data=folders)) == 4
    (tmp_path / "dataset.json").touch()
    error = files.error(tree, data=folders)
    assert (error.key, error.found) == ("--data", f"icd10cm={tmp_path}")
    assert len(files.cells(tree, data=folders, only=["*/b"])) == 2


def test_tolerance_digits_and_direction_may_be_a_figures_own(files):
    small_scale = {"small": {"about": "less", "tolerance": {"F1": 3}}}
    files.cells({"tolerance": {"Acc": 0.1}, "digits": {"Acc": 3}, "scales": small_scale})
    table = load_table(files.file)
    assert [table.tolerance_of(name) for name in ("Acc", "F1")] == [0.1, None]
    assert [table.tolerance_of(name, "small") for name in ("Acc", "F1")] == [None, 3]
    assert [table.digits_of(name) for name in ("Acc", "F1")] == [3, 2]
    for setting, expected in (
        ({}, [True, False]),
        ({"better": {"HL": "higher"}}, [True, True]),
        ({"better": {"Acc": "lower"}}, [False, False]),
        ({"better": "higher"}, [True, True]),
    ):
        files.cells({"metrics": {"Acc": "test/accuracy", "HL": "test/hamming_loss"}, **setting})
        assert [load_table(files.file).is_better_higher(name) for name in ("Acc", "HL")] == expected


def test_data_reaches_the_set_that_is_transferred_to(files, tmp_path):
    settings = {"evaluation.transfer_to": {"source": "cifar10", "labels": "class"}}
    cells = files.cells({"set": settings}, data={"cifar10": str(tmp_path)})
    assert cells[0].jobs[0].evaluation.transfer_to.options == {"path": str(tmp_path)}
    assert cells[0].jobs[0].data.path == "data"


def test_neighbours_that_a_row_asks_for_share_the_training(files):
    knn = {"evaluation.knn.k": 7, "evaluation.knn.lambda": 0.25}
    tree = {
        "metrics": {"Acc": "knn/test/accuracy"},
        "rows": {"plain": {}, "k 7": {"set": knn}},
        "columns": {"c": {}, "tau": {"set": {"evaluation.knn.temperature": 3}}},
        "paper": {},
    }
    cells = files.cells(tree)
    assert [dict(cell.neighbours) for cell in cells] == [
        {}, {"temperature": 3}, {"k": 7, "lambda": 0.25}, {"k": 7, "lambda": 0.25, "temperature": 3}
    ]  # fmt: skip
    assert all(cell.jobs == cells[0].jobs for cell in cells)
    job = cells[3].seed_job(1)
    assert changed(job, cells[0].jobs[1]) == {
        "evaluation.knn.k", "evaluation.knn.lambda", "evaluation.knn.temperature"
    }  # fmt: skip
    assert (job.evaluation.knn.k, job.evaluation.knn.lambda_) == (7, 0.25)


@pytest.mark.parametrize("override", [{"evaluation.knn.k": 2}, {"evaluation.knn": {"k": 2}}])
def test_an_override_has_the_last_word_over_neighbours_too(files, override):
    tree = {"rows": {"k 7": {"set": {"evaluation.knn.k": 7}}}, "columns": {"c": {}}, "paper": {}}
    (cell,) = files.cells(tree, overrides=override)
    keys = {"train.patience": 2, "evaluation.metric": "knn/val/accuracy"}  # of neighbours that are set whole
    full_cell = files.cells({"set": keys, **line(set={"evaluation.knn": {"k": 2}})})[0]
    assert cell.neighbours == full_cell.neighbours == {}
    assert cell.seed_job(0).evaluation.knn.k == cell.jobs[0].evaluation.knn.k == 2


def line(**how):
    return {"rows": {"a": how}, "columns": {"b": {}}, "paper": {}}


# Each line has a change of the table, the key of the error, and part of its line; `@` is the only row.
WRONG = """
ranks: {control: MLCL} | | ranks.control: no ranked row MLCL
ranks: {leave_out: [MLCL]} | | ranks.leave_out: no row MLCL
ranks: {leave_out: [CE, SupCon]}, rows: {CE: {}, SupCon: {}}, paper: {} | | ranks.leave_out names all rows
ranks: {control: CE, leave_out: [CE]} | | ranks.control: no ranked row CE
"@": {columns: [c]} | | rows.a.columns: no column c
columns: {b: {columns: [b]}}, paper: {} | columns.b.columns | unknown key
rows: {CE: {columns: [All]}}, paper: {CE: {10 a class: [1, 2]}} | | paper.CE: no column 10 a class
tittle: x | tittle | did you mean title
paper: {CEE: {}} | | paper: no row CEE
paper: {CE: {Al: 1}} | | paper.CE: no column Al
paper: {CE: {All: 71.5}} | paper.CE.All | found: 1; allowed: 2
paper: {CE: {All: [1, 2, 3]}} | paper.CE.All | found: 3; allowed: 2
paper: {CE: {All: [.nan, 1]}} | paper.CE.All.0 | finite
scales: {s: {about: x, rows: [CEE]}} | | scales.s: no row CEE
scales: {s: {about: x, rows: [CE, CE]}} | | row CE stands twice
scales: {s: {about: x, rows: []}} | scales.s.rows | at least 1
scales: {a/b: {about: x}} | scales.a/b | pattern
better: {Ac: lower} | | better: no figure Ac
columns: {b: {without: [AUC]}}, paper: {} | | columns.b.without: no figure AUC
"@": {without: [Acc, F1]} | rows.a.without, columns.b.without | no figure is left
digits: {AUC: 1} | | digits: no figure AUC
tolerance: {AUC: 1} | | tolerance: no figure AUC
columns: {k=1: {}, K 1: {}}, paper: {} | | K 1 and k=1 are both k-1
columns: {τ: {}}, paper: {} | | needs one of a-z and 0-9
metrics: {F1: a, f1: b}, paper: {} | | f1 and F1 are both f1
"@": {metrics: {}} | rows.a.metrics | at least 1
tolerance: 0 | tolerance | greater than 0
job: null | job | name a job
job: "{kind}.yaml" | job | found: kind; allowed: none
job: "{kind.x}{}.yaml" | job | found: kind.x
set: {train: {seed: 1}} | | set: the table itself sets train.seed in every job
"@": {set: {experiment: x}} | | set: the table itself sets experiment in every job
set: {train.epochs.x: 1} | set.train.epochs | no keys below
"@": {drop: [encoder.wide]} | drop | found: encoder.wide
"@": {drop: [train.epochs.x]} | drop | found: train.epochs.x
"@": {set: {train.epoch: 1}} | train.epoch | did you mean epochs? (cell a/b)
"@": {set: {evaluation.knn.k: 0}} | evaluation.knn.k | (cell a/b)
"@": {set: {evaluation.knn.lambda: 2}} | evaluation.knn.lambda | (cell a/b)
"@": {drop: [evaluation.knn], set: {evaluation.knn.k: 2}} | evaluation.knn | no neighbours to set
set: {train.patience: 2, evaluation.metric: knn/val/accuracy}, "@": {set: {evaluation.knn.k: 2}} | \
train.patience | the neighbours decide
"""


@pytest.mark.parametrize("row", WRONG.strip().splitlines())
def test_a_mistake_is_one_error_that_names_file_and_key(files, row):
    change, key, text = row.split("|")
    tree = yaml.safe_load(f"{{{change}}}")
    if "@" in tree:
        tree |= line(**tree.pop("@"))
    error = files.error(tree)
    assert error.file == str(files.file)
    assert (error.key or "") == key.strip()
    assert text.strip() in error.line()


def test_seeds_that_do_not_seed_the_training_and_an_absent_job_file_are_refused(files):
    error = files.error({"seed_keys": ["data.split_seed"]})
    assert (error.key, error.file) == ("seed_keys", str(files.file))
    assert "lacks train.seed, by which runs are told apart and paired" in error.line()
    assert files.error({"job": "absent.yaml"}).file == str(files.folder / "absent.yaml")


HEADS = "objective.heads.*.weight"


@pytest.mark.parametrize(
    ("how", "key", "text"),
    [
        ({"scale": "large"}, "--scale", "found: large; allowed: none"),
        ({"only": ["ce/*", "x*"]}, "--only", "found: x*; allowed: ce/all, ce/10-a-class"),
        ({"data": {"coco": "x"}}, "--data", "no cell takes this source; found: coco; allowed: all, 10"),
        ({"data": {"all": "x"}}, "--data", "names a prepared data set and no source; found: all=x"),
        ({"overrides": {"train.epoch": 3}}, "train.epoch", "did you mean epochs"),
        ({"overrides": {"train.epochs.x": 3}}, "train.epochs", "no keys below"),
        ({"overrides": {"train.seed": 3}}, "train.seed", "the table itself sets train.seed"),
        ({"overrides": {"train": {"epochs": 3}}}, "train", "the table itself sets train.seed"),
        ({"overrides": {"experiment": "x"}}, "experiment", "the table itself sets experiment"),
        ({"overrides": {HEADS: 1}, "only": ["ce/*"]}, HEADS, "its * matches no key of the job"),
    ],
)  # fmt: skip
def test_what_the_command_line_gets_wrong_is_one_error(files, how, key, text):
    error = files.error(**how)
    assert error.key == key
    assert text in error.line()


def test_an_alternative_is_in_the_scales_that_name_it(files):
    alternative = {"Sum": {"alternative": True, "set": {"objective.heads.*.reduction": "sum"}}}
    scales = {"small": {"about": "both", "rows": ["MLCL (ours)", "Sum"], "columns": ["All"]}}
    tree = {"rows": {**TABLE["rows"], **alternative}, "scales": scales}
    assert ids(files.cells(tree)) == ids(files.cells())
    small_cells = files.cells(tree, scale="small")
    assert ids(small_cells) == ["mlcl-ours/all", "sum/all"]
    heads = small_cells[1].jobs[0].objective.heads
    assert {name: head.reduction for name, head in heads.items()} == {"detail": "sum", "topic": "sum"}
    keys = {f"objective.heads.{head}.reduction" for head in ("detail", "topic")}
    assert changed(small_cells[0].jobs[0], small_cells[1].jobs[0]) == keys
    # A row without heads has nothing to set.
    sum_cells = files.cells(overrides={"objective.heads.*.reduction": "sum"})
    assert sum_cells[0].jobs[0].objective.heads == {}


def test_tables_are_found_by_name_or_by_path_and_ids_are_lower_case_without_signs(tmp_path):
    slugs = {"MLCL (ours)": "mlcl-ours", "BCE + kNN": "bce-+-knn", "P@5": "p-5", "5,000 R2,3": "5000-r2-3"}
    assert {name: slug(name) for name in slugs} == slugs
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").touch()
    assert [file.stem for file in table_files(tmp_path)] == ["a", "b"]
    assert find_table("a", tmp_path) == tmp_path / "a.yaml"
    assert find_table("some/where.yml", tmp_path) == Path("some/where.yml")
    with pytest.raises(UserError, match="no such table; did you mean a") as error:
        find_table("aa", tmp_path)
    assert (error.value.key, error.value.allowed) == ("TABLE", ["a", "b"])


def test_a_row_or_column_leaves_figures_out(files):
    rows = {"CE": {"without": ["F1"]}, "SupCon": {"metrics": {"Acc": "test/accuracy", "AUC": "test/auc"}}}
    columns = {"All": {}, "Few": {"without": ["Acc"]}}
    tree = {"rows": rows, "columns": columns, "paper": {}, "metrics": TABLE["metrics"] | {"R": "test/r"}}
    names = {cell.id: [figure.name for figure in cell.figures] for cell in files.cells(tree)}
    assert names == {
        "ce/all": ["Acc", "R"],
        "ce/few": ["R"],
        "supcon/all": ["Acc", "AUC"],
        "supcon/few": ["AUC"],
    }
