import csv
import gzip
import io

import pytest

from mlcl.data import Dataset
from mlcl.data.sources import mimic3, mimic4
from mlcl.data.sources.common.clinical import clean_text
from mlcl.data.sources.common.icd_codes import (
    icd9_diagnosis,
    icd9_diagnosis_chapter,
    icd9_procedure,
    icd9_procedure_chapter,
    icd10_diagnosis_chapter,
    icd10_procedure_section,
)
from mlcl.data.validation import check
from mlcl.errors import UserError
from mlcl.testing.sources import SourceTestCase, Wart

NOTES_3 = [
    *("ROW_ID", "SUBJECT_ID", "HADM_ID", "CHARTDATE", "CHARTTIME", "STORETIME"),
    *("CATEGORY", "DESCRIPTION", "CGID", "ISERROR", "TEXT"),
]
CODES_3 = ["ROW_ID", "SUBJECT_ID", "HADM_ID", "SEQ_NUM", "ICD9_CODE"]
NOTES_4 = ["note_id", "subject_id", "hadm_id", "note_type", "note_seq", "charttime", "storetime", "text"]
CODES_4 = ["subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"]
PROCEDURES_4 = ["subject_id", "hadm_id", "seq_num", "chartdate", "icd_code", "icd_version"]

REPORT = 'Admission Date:  [**2151-7-16**]\n\nShe said "no pain",\ntook 250mg of 500.\n'
SUMMARIES = [
    # Admission, date, category, description, text.
    ("100003", "2151-08-04", "Discharge summary", "Addendum", "Second addendum."),
    ("100003", "2151-07-30", "Discharge summary", "Addendum", "Addendum of the day."),
    ("100003", "2151-07-30", "Discharge summary", "Report", REPORT),
    ("100003", "2151-07-29", "Nursing/other", "Report", "Slept well."),
    ("100001", "2150-01-01", "Discharge summary", "Report", "Train one."),
    ("99999", "2150-01-02", "Discharge summary", "Report", "Without a code."),
    ("100007", "2150-01-03", "Discharge summary", "Report", "To be validated."),
    ("100009", "2150-01-04", "Discharge summary", "Report", "To be tested."),
    ("100011", "2150-01-05", "Discharge summary", "Report", "In no list."),
    ("", "2150-01-06", "Discharge summary", "Report", "Of no admission."),
]
DIAGNOSES = [
    ("100001", "4019"),
    ("100001", "0117"),
    ("100001", "4019"),
    ("100003", "E8791"),
    ("100003", "V5861"),
    ("100003", "486"),
    ("99999", ""),
    ("100007", "4019"),
    ("100009", "4019"),
    ("100009", "25000"),
    ("100011", "4280"),
]
PROCEDURES = [("100001", "0117"), ("100003", "117"), ("100007", "3893"), ("100009", "117")]
LISTS = {"train": ["100003", "100001", "99999"], "dev": ["100007"], "test": ["100009", "123456"]}


def quoted(header, rows):
    """As the tables of MIMIC-III are written: text in quotes, numbers bare."""
    with io.StringIO() as file:
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(header)
        writer.writerows(rows)
        return file.getvalue().encode()


def plain(header, rows):
    """As the tables of MIMIC-IV are written: quotes where they are needed."""
    with io.StringIO() as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        return file.getvalue().encode()


def put(file, content):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def put_lists(folder, lists, codes="full"):
    for name, ids in lists.items():
        put(folder / f"{name}_{codes}_hadm_ids.csv", "".join(f"{i}\n" for i in ids).encode())


@pytest.fixture
def tables3(tmp_path):
    def tables3(end="", header=lambda names: names, folder="mimic"):
        root = tmp_path / folder
        notes = [
            (row, int(f"9{row}"), *(int(a) if a else "",), date, "", "", category, kind, "", "", text)
            for row, (a, date, category, kind, text) in enumerate(SUMMARIES, 174)
        ]
        put(root / f"NOTEEVENTS.csv{end}", quoted(header(NOTES_3), notes))
        for name, rows in {"DIAGNOSES_ICD": DIAGNOSES, "PROCEDURES_ICD": PROCEDURES}.items():
            coded = [(n, 1, int(a), n, code) for n, (a, code) in enumerate(rows)]
            put(root / f"{name}.csv{end}", quoted(header(CODES_3), coded))
        put_lists(tmp_path / "lists", LISTS)
        return root

    return tables3


@pytest.fixture
def mimic3_set(tmp_path, tables3):
    def mimic3_set(root=None, **options):
        given = {"path": root or tables3(), "splits": tmp_path / "lists", "check_counts": False} | options
        mimic3.SOURCE.write(tmp_path / "set", mimic3.SOURCE.options(**given), 0)
        return Dataset.open(tmp_path / "set")

    return mimic3_set


def rows_of(data, space="codes"):
    """Every row: its split, text and label names."""
    names = data.info.space(space).classes
    rows = {}
    for name in data.info.rows:
        split = data.split(name)
        labels = split.labels(space).lists()
        for i, text, own in zip(split.ids, split.texts(), labels, strict=True):
            rows[i] = (name, text, [names[c] for c in own])
    return rows


def labels_of(data, space="codes"):
    return {row: labels for row, (_, _, labels) in rows_of(data, space).items()}


def test_mimic3_has_every_listed_summary_with_its_codes(mimic3_set, tmp_path):
    data = mimic3_set(clean=False)
    full = f"{REPORT}\nAddendum of the day.\nSecond addendum."
    assert rows_of(data) == {
        "99999": ("train", "Without a code.", []),
        "100001": ("train", "Train one.", ["01.17", "011.7", "401.9"]),
        "100003": ("train", full, ["11.7", "486", "E879.1", "V58.61"]),
        "100007": ("validation", "To be validated.", ["401.9"]),
        "100009": ("test", "To be tested.", ["11.7", "401.9"]),
    }
    assert data.split("train").ids == ["99999", "100001", "100003"]
    assert labels_of(data, "chapters")["100003"] == ["460-519", "E000-E999", "V01-V91", "procedures 08-16"]
    assert check(tmp_path / "set").warnings == (
        "codes: rows without a label are 33.3 % of train",
        "chapters: rows without a label are 33.3 % of train",
    )


def test_mimic3_keeps_codes_without_a_training_row_on_demand(mimic3_set, tmp_path):
    labels = labels_of(mimic3_set(allow_untrained=True))
    assert labels["100007"] == ["38.93", "401.9"]
    assert labels["100009"] == ["11.7", "250.00", "401.9"]
    warning = check(tmp_path / "set").warnings[0]
    assert warning == "codes: 2 classes have no training row: 250.00, 38.93"


def test_mimic3_of_the_fifty_codes_has_rows_with_one_of_them(mimic3_set, tmp_path):
    put_lists(tmp_path / "lists", LISTS, "50")
    assert labels_of(mimic3_set(codes=50)) == {
        "100001": ["401.9"],
        "100003": ["486", "V58.61"],
        "100007": ["401.9"],
        "100009": ["401.9"],
    }


def test_mimic3_files_may_be_compressed_deep_and_headed_in_small_letters(mimic3_set, tables3, tmp_path):
    tables3(".gz", lambda names: [name.lower() for name in names], "mimic/files/1.4")
    (tmp_path / "lists").rename(tmp_path / "mimic3")
    data = mimic3_set(tmp_path / "mimic", splits=tmp_path)
    assert data.info.rows == {"train": 3, "validation": 1, "test": 1}
    assert data.info.licence.startswith("PhysioNet")


def test_clean_text_drops_numbers_punctuation_and_brackets():
    assert clean_text(REPORT) == "admission date she said no pain took 250mg of"
    assert clean_text("Name: ___ [**Hospital 18**] 12,5 µg/L é") == "name hospital µg l é"


def test_counts_are_compared_with_the_published(mimic3_set, monkeypatch, tmp_path):
    with pytest.raises(
        UserError, match=r"found: train 3, .*codes 7.*allowed: train 47,723, .*8,692"
    ) as error:
        mimic3_set(check_counts=True)
    assert "check_counts=false" in str(error.value)
    assert not (tmp_path / "set").exists()
    counts = {"train": 3, "validation": 1, "test": 1, "codes": 7, "codes a row": 2.0}
    monkeypatch.setitem(mimic3.PUBLISHED, "full", counts)
    assert mimic3_set(check_counts=True).info.rows["train"] == 3
    (tmp_path / "set").rename(tmp_path / "other")
    counts["codes a row"] = 2.4
    assert mimic3_set(check_counts=True, allow_untrained=True).info.space("codes").n_classes == 9


def test_mimic3_without_lists_says_which_and_who_has_them(mimic3_set):
    with pytest.raises(UserError, match=r"key data.options.splits.*CAML.*dev_full_hadm_ids.csv.*or seeded"):
        mimic3_set(splits=None)


def test_a_missing_list_is_named(mimic3_set, tables3, tmp_path):
    root = tables3()
    (tmp_path / "lists" / "test_full_hadm_ids.csv").unlink()
    with pytest.raises(UserError, match=r"files of CAML .* are missing.*test_full_hadm_ids.csv"):
        mimic3_set(root)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["100007", "HADM_ID"], r"dev_full_hadm_ids.csv: line 2 is no admission id; found: HADM_ID"),
        (["100001"], r"dev_full_hadm_ids.csv: the admission of line 1 is in the list of train too"),
    ],
)
def test_bad_lists(mimic3_set, tables3, tmp_path, ids, message):
    root = tables3()
    put_lists(tmp_path / "lists", {"dev": ids})
    with pytest.raises(UserError, match=message):
        mimic3_set(root)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("DIAGNOSES_ICD.csv", b'"ROW_ID","HADM_ID"\n', r"DIAGNOSES_ICD.csv: .*lacks a column.*SUBJECT_ID"),
        ("PROCEDURES_ICD.csv", b"", r"PROCEDURES_ICD.csv: .*lacks a column"),
        (
            "NOTEEVENTS.csv",
            quoted(NOTES_3, [[1, 2]]),
            r"number of fields in .* line 2; found: 2; allowed: 11",
        ),
        (
            "NOTEEVENTS.csv",
            quoted(NOTES_3, []) + b'1,2,3,"a',
            r"NOTEEVENTS.csv: cannot be read at or after line 2",
        ),
        (
            "NOTEEVENTS.csv",
            quoted(NOTES_3, []) + b"\xff\n",
            r"NOTEEVENTS.csv: cannot be read at or after line",
        ),
    ],
)
def test_damaged_tables(mimic3_set, tables3, name, content, message):
    root = tables3()
    (root / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        mimic3_set(root)


def test_missing_and_truncated_tables(mimic3_set, tables3, tmp_path):
    root = tables3(".gz")
    notes = root / "NOTEEVENTS.csv.gz"
    notes.write_bytes(notes.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"NOTEEVENTS.csv.gz: cannot be read; is it whole"):
        mimic3_set(root)
    notes.unlink()
    with pytest.raises(
        UserError, match=r"files of MIMIC-III .* are missing.*NOTEEVENTS.csv.gz or NOTEEVENTS.csv"
    ):
        mimic3_set(root)
    assert not (tmp_path / "set").exists()


def test_lists_that_name_no_coded_admission(mimic3_set, tables3, tmp_path):
    root = tables3()
    put_lists(tmp_path / "lists", {"train": ["99999"]})
    with pytest.raises(UserError, match=r"no training one has a note and a code"):
        mimic3_set(root)


def test_state_tells_changed_lists_and_tables(tables3, tmp_path):
    options = mimic3.SOURCE.options(path=tables3(), splits=tmp_path / "lists")
    before = mimic3.state(options)
    assert mimic3.state(options) == before
    put_lists(tmp_path / "lists", {"dev": ["100007", "100011"]})
    changed = mimic3.state(options)
    assert changed != before
    put(options.path / "PROCEDURES_ICD.csv", quoted(CODES_3, []))
    assert mimic3.state(options) != changed


STAYS_4 = [
    # Patient, admission, version, diagnoses, procedures.
    ("10000032", "22595853", "9", ["5723", "07070", "42731"], ["5491"]),
    ("10000032", "22841357", "9", ["07070", "42731"], []),
    ("10000084", "23052089", "10", ["G3183", "I10", "M1A0"], ["0QS734Z"]),
    ("10000117", "22927623", "10", ["R1310", "I10"], []),
    ("10000248", "20600184", "10", ["I10", "Z3A20"], []),
]
LISTS_4 = {
    "9": {"train": ["22595853"], "dev": ["22841357"], "test": []},
    "10": {"train": ["23052089"], "dev": ["22927623"], "test": ["20600184"]},
}


def put_tables4(root, stays=STAYS_4, notes="note"):
    diagnoses = [(p, a, n, c, v) for p, a, v, codes, _ in stays for n, c in enumerate(codes, 1)]
    procedures = [
        (p, a, n, "2180-05-07", c, v) for p, a, v, _, codes in stays for n, c in enumerate(codes, 1)
    ]
    put(root / "hosp/diagnoses_icd.csv.gz", plain(CODES_4, diagnoses))
    put(root / "hosp/procedures_icd.csv.gz", plain(PROCEDURES_4, procedures))
    texts = [
        (f"{p}-DS-{n}", p, a, "DS", n, "2180-05-07 00:00:00", "", f' \nName:  ___ , "{a}x"\n')
        for n, (p, a, *_) in enumerate(stays, 21)
    ]
    put(root / notes / "discharge.csv.gz", plain(NOTES_4, texts))
    return root


@pytest.fixture
def mimic4_set(tmp_path):
    def mimic4_set(name="set", **options):
        given = {"path": tmp_path / "mimiciv", "splits": tmp_path / "lists", "check_counts": False} | options
        mimic4.SOURCE.write(tmp_path / name, mimic4.Options(**given), 0)
        return Dataset.open(tmp_path / name)

    put_tables4(tmp_path / "mimiciv")
    for version, lists in LISTS_4.items():
        put_lists(tmp_path / "lists" / f"mimic4_icd{version}", lists)
        put_lists(tmp_path / "lists" / f"mimic4_icd{version}", lists, "50")
    return mimic4_set


def test_mimic4_with_icd10_codes_as_they_are_written(mimic4_set, tmp_path):
    data = mimic4_set()
    assert rows_of(data) == {
        "23052089": ("train", "name 23052089x", ["0QS734Z", "G3183", "I10", "M1A0"]),
        "22927623": ("validation", "name 22927623x", ["I10"]),
        "20600184": ("test", "name 20600184x", ["I10"]),
    }
    assert labels_of(data, "chapters")["23052089"] == ["G00-G99", "I00-I99", "M00-M99", "procedures 0"]
    assert check(tmp_path / "set").warnings == ("codes: every row has I10", "chapters: every row has I00-I99")


def test_mimic4_with_icd9_codes_and_their_dots(mimic4_set):
    labels = labels_of(mimic4_set(version=9))
    assert labels == {
        "22595853": ["070.70", "427.31", "54.91", "572.3"],
        "22841357": ["070.70", "427.31"],
    }


def test_mimic4_takes_the_fifty_codes_from_the_lists(mimic4_set, tmp_path):
    lists = tmp_path / "lists/mimic4_icd9"
    with pytest.raises(UserError, match=r"MIMIC-IV-ICD .*TOP_50_CODES.csv"):
        mimic4_set(version=9, codes=50, splits=lists)
    put(lists / "TOP_50_CODES.csv", b"427.31\n54.91\n")
    data = mimic4_set(version=9, codes=50, splits=lists)
    assert labels_of(data) == {"22595853": ["427.31", "54.91"], "22841357": ["427.31"]}


def test_mimic4_with_the_lists_of_the_other_version(mimic4_set, tmp_path):
    with pytest.raises(UserError, match="no training one has a note and a code"):
        mimic4_set(version=9, splits=tmp_path / "lists/mimic4_icd10")


def test_mimic4_notes_may_lie_elsewhere(mimic4_set, tmp_path):
    (tmp_path / "mimiciv/note").rename(tmp_path / "notes")
    with pytest.raises(UserError, match=r"files of MIMIC-IV-Note .* are missing"):
        mimic4_set()
    assert mimic4_set(notes=tmp_path / "notes").info.rows == {"train": 1, "validation": 1, "test": 1}


def test_mimic4_counts_and_lists(mimic4_set):
    with pytest.raises(
        UserError, match=r"allowed: train 110,442, validation 4,017, test 7,851, codes 25,230"
    ):
        mimic4_set(check_counts=True)
    with pytest.raises(UserError, match=r"MIMIC-IV-ICD by Nguyen.*train_full_hadm_ids.csv"):
        mimic4_set(splits=None)


def test_a_seeded_split_keeps_a_patient_together_and_counts_the_codes(mimic4_set, tmp_path):
    stays = [
        (str(10_000 + n // 2), str(20_000 + n), "10", ["I10", f"A{n % 60 // 2:02}", f"B{n % 7}1"], [])
        for n in range(400)
    ]
    put_tables4(tmp_path / "mimiciv", stays)
    rows = rows_of(mimic4_set(splits="seeded", check_counts=True))
    patient = {admission: patient for patient, admission, *_ in stays}
    splits = {(patient[row], split) for row, (split, _, _) in rows.items()}
    assert len(rows) == 400
    assert len(splits) == 200
    assert {split for _, split in splits} == {"train", "validation", "test"}
    fifty = mimic4_set("fifty", splits="seeded", codes="50")
    assert fifty.info.space("codes").n_classes == 38
    assert {row: split for row, (split, _, _) in rows_of(fifty).items()} == {
        r: s for r, (s, _, _) in rows.items()
    }
    assert mimic4.state(mimic4.Options(path=tmp_path / "mimiciv", splits="seeded"))


@pytest.mark.parametrize(
    ("code", "written", "chapter"),
    [
        ("4019", "401.9", "390-459"),
        ("486", "486", "460-519"),
        ("0117", "011.7", "001-139"),
        ("V5861", "V58.61", "V01-V91"),
        ("E8791", "E879.1", "E000-E999"),
        ("E849", "E849", "E000-E999"),
        ("7", "7", "other"),
    ],
)
def test_icd9_diagnoses(code, written, chapter):
    assert icd9_diagnosis(code) == written
    assert icd9_diagnosis_chapter(written) == chapter


@pytest.mark.parametrize(
    ("code", "written", "chapter"),
    [
        ("0117", "01.17", "procedures 01-05"),
        ("117", "11.7", "procedures 08-16"),
        ("3893", "38.93", "procedures 35-39"),
        ("0066", "00.66", "procedures 00"),
        ("9", "9", "procedures other"),
    ],
)
def test_icd9_procedures(code, written, chapter):
    assert icd9_procedure(code) == written
    assert icd9_procedure_chapter(written) == chapter


@pytest.mark.parametrize(
    ("code", "chapter"),
    [("A000", "A00-B99"), ("C7A1", "C00-D49"), ("D500", "D50-D89"), ("O9A2", "O00-O9A"), ("Y929", "V00-Y99")],
)
def test_icd10_chapters(code, chapter):
    assert icd10_diagnosis_chapter(code) == chapter
    assert icd10_procedure_section("02HV33Z") == "procedures 0"


class TestMimic3(SourceTestCase):
    name = "mimic3"
    options = {"check_counts": False}
    touched = ("NOTEEVENTS.csv", "DIAGNOSES_ICD.csv", "../lists/train_full_hadm_ids.csv")
    warts = (
        Wart({"NOTEEVENTS.csv": None}, "no NOTEEVENTS.csv.gz or NOTEEVENTS.csv"),
        Wart({"../lists/dev_full_hadm_ids.csv": None}, "dev_full_hadm_ids.csv"),
        Wart({}, "not the published counts", {"check_counts": True}),
    )

    @pytest.fixture
    def given(self, tables3):
        return tables3()

    @pytest.fixture
    def settings(self, given, tmp_path):
        return {"path": str(given), "splits": str(tmp_path / "lists"), **self.options}


class TestMimic4(SourceTestCase):
    name = "mimic4"
    options = {"check_counts": False}
    touched = ("hosp/diagnoses_icd.csv.gz", "note/discharge.csv.gz")
    warts = (Wart({"hosp/diagnoses_icd.csv.gz": None}, "diagnoses_icd"),)

    @pytest.fixture
    def given(self, mimic4_set, tmp_path):
        return tmp_path / "mimiciv"

    @pytest.fixture
    def settings(self, given, tmp_path):
        return {"path": str(given), "splits": str(tmp_path / "lists"), **self.options}
