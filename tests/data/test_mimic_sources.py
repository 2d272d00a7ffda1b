import csv
import gzip
import io

import pytest
from data.conftest import DistributionTestCase, rows_of, splits_of

from mlcl.data.sources import mimic
from mlcl.data.sources.common.clinical import clean_text, clean_tokens
from mlcl.data.sources.mimic import (
    icd9_diagnosis,
    icd9_diagnosis_chapter,
    icd9_procedure,
    icd9_procedure_chapter,
    icd10_diagnosis_chapter,
    icd10_procedure_section,
)
from mlcl.data.validation import check
from mlcl.errors import UserError
from mlcl.testing.sources import Wart

NOTES_3 = [
    *("ROW_ID", "SUBJECT_ID", "HADM_ID", "CHARTDATE", "CHARTTIME", "STORETIME"),
    *("CATEGORY", "DESCRIPTION", "CGID", "ISERROR", "TEXT"),
]
CODES_3 = ["ROW_ID", "SUBJECT_ID", "HADM_ID", "SEQ_NUM", "ICD9_CODE"]
NOTES_4 = ["note_id", "subject_id", "hadm_id", "note_type", "note_seq", "charttime", "storetime", "text"]
CODES_4 = ["subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"]
PROCEDURES_4 = ["subject_id", "hadm_id", "seq_num", "chartdate", "icd_code", "icd_version"]

REPORT = 'Admission Date:  [**2151-7-16**]\n\nShe said "no pain",\ntook 250mg of 500.\n'
ADDENDA = "Addendum of the day.\nSecond addendum."
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
TABLES_3 = {
    "DIAGNOSES_ICD.csv": "100001 4019, 100001 0117, 100001 4019, 100003 E8791, 100003 V5861, 100003 486, "
    "99999 , 100007 4019, 100009 4019, 100009 25000, 100011 4280",
    "PROCEDURES_ICD.csv": "100001 0117, 100003 117, 100007 3893, 100009 117",
}
"""The rows of each MIMIC-III table, as pairs of an admission and a code."""


def written(header, rows, quoting=csv.QUOTE_MINIMAL):
    """Returns a CSV file as bytes; MIMIC-III quotes all texts, MIMIC-IV only those that need quotes."""
    with io.StringIO() as file:
        writer = csv.writer(file, lineterminator="\n", quoting=quoting)
        writer.writerow(header)
        writer.writerows(rows)
        return file.getvalue().encode()


def quoted(header, rows):
    return written(header, rows, csv.QUOTE_NONNUMERIC)


def lists(train, dev, test, folder="lists", codes="full"):
    names = {"train": train, "dev": dev, "test": test}
    return {f"{folder}/{n}_{codes}_hadm_ids.csv": "\n".join(ids.split()) + "\n" for n, ids in names.items()}


def mimic3_files(end="", folder="", header=lambda names: names):
    notes = [
        (row, int(f"9{row}"), int(a) if a else "", date, "", "", category, kind, "", "", text)
        for row, (a, date, category, kind, text) in enumerate(SUMMARIES, 174)
    ]
    tables = {"NOTEEVENTS.csv": quoted(header(NOTES_3), notes)}
    for name, cells in TABLES_3.items():
        rows = [cell.split(" ") for cell in cells.split(", ")]
        code_rows = [(n, 1, int(admission), n, code) for n, (admission, code) in enumerate(rows)]
        tables[name] = quoted(header(CODES_3), code_rows)
    compress = gzip.compress if end else bytes
    return {f"{folder}{name}{end}": compress(content) for name, content in tables.items()}


class ClinicalTestCase(DistributionTestCase):
    """A suite for a source that reads lists of admissions beside its tables."""

    @pytest.fixture
    def settings(self, given):
        return {"path": str(given), "splits": str(given / "lists"), **self.options}


def labels_of(data):
    return {row: labels for row, (_, _, labels) in rows_of(data, "codes").items()}


EVENTS, PACKED = "NOTEEVENTS.csv", "NOTEEVENTS.csv.gz"
DEV, TEST = "lists/dev_full_hadm_ids.csv", "lists/test_full_hadm_ids.csv"


class TestMimic3(ClinicalTestCase):
    name = "mimic3"
    files = {
        **mimic3_files(),
        **lists("100003 100001 99999", "100007", "100009 123456"),
        **lists("100003 100001 99999", "100007", "100009 123456", codes="50"),
    }
    counts = (
        "found: train 3, validation 1, test 1, codes 7, codes a row 2.0; allowed: train 47,723, validation"
    )
    touched = ("NOTEEVENTS.csv", "DIAGNOSES_ICD.csv", "PROCEDURES_ICD.csv", DEV)
    warts = (
        Wart({EVENTS: None}, "no NOTEEVENTS.csv.gz or NOTEEVENTS.csv"),
        Wart(
            {EVENTS: None, PACKED: mimic3_files(".gz")[PACKED][:-20]},
            f"{PACKED}: cannot be read; is it whole",
        ),
        Wart({EVENTS: quoted(NOTES_3, [[1, 2]])}, "ends at line 2; found: 2; allowed: 11"),
        Wart(
            {EVENTS: quoted(NOTES_3, []) + b'1,2,3,"a'}, "NOTEEVENTS.csv: cannot be read at or after line 2"
        ),
        Wart({EVENTS: quoted(NOTES_3, []) + b"\xff\n"}, "NOTEEVENTS.csv: cannot be read at or after line"),
        Wart(
            {"DIAGNOSES_ICD.csv": "ROW_ID,HADM_ID\n"}, "lacks a column; found: row_id, hadm_id; allowed: SUB"
        ),
        Wart({"PROCEDURES_ICD.csv": ""}, "PROCEDURES_ICD.csv: the header line lacks a column"),
        Wart({TEST: None}, "CAML by Mullenbach et al. (2018), in its folder mimicdata/mimic3 are missing"),
        Wart({DEV: "100007\nHADM_ID\n"}, "dev_full_hadm_ids.csv: line 2 is no admission id; found: HADM_ID"),
        Wart({DEV: "100001\n"}, "dev_full_hadm_ids.csv: the admission of line 1 is in the list of train too"),
        Wart({"lists/train_full_hadm_ids.csv": "99999\n"}, "no training one has a note and a code"),
        Wart({}, "dev_full_hadm_ids.csv, test_full_hadm_ids.csv; or seeded", {"splits": None}),
    )

    def test_every_listed_summary_has_its_codes(self, read, tmp_path):
        data = read(clean=False)
        assert {row: values[:3] for row, values in rows_of(data, "codes").items()} == {
            "99999": ("train", "Without a code.", []),
            "100001": ("train", "Train one.", ["01.17", "011.7", "401.9"]),
            "100003": ("train", f"{REPORT}\n{ADDENDA}", ["11.7", "486", "E879.1", "V58.61"]),
            "100007": ("validation", "To be validated.", ["401.9"]),
            "100009": ("test", "To be tested.", ["11.7", "401.9"]),
        }
        assert data.split("train").ids == ["99999", "100001", "100003"]
        chapters = ["460-519", "E000-E999", "V01-V91", "procedures 08-16"]
        assert rows_of(data, "chapters")["100003"][2] == chapters
        assert data.info.licence.startswith("PhysioNet")
        assert check(data.place).warnings == (
            "codes: rows without a label are 33.3 % of train",
            "chapters: rows without a label are 33.3 % of train",
        )

    def test_codes_without_a_training_row_are_kept_on_demand(self, read):
        data = read(allow_untrained=True)
        labels = labels_of(data)
        assert labels["100007"] == ["38.93", "401.9"]
        assert labels["100009"] == ["11.7", "250.00", "401.9"]
        warning = check(data.place).warnings[0]
        assert warning == "codes: 2 classes have no training row: 250.00, 38.93"

    def test_of_the_fifty_codes_rows_have_one(self, read):
        labels = {"100001": ["401.9"], "100003": ["486", "V58.61"], "100007": ["401.9"], "100009": ["401.9"]}
        assert labels_of(read(codes=50)) == labels

    def test_files_may_be_compressed_deep_and_headed_in_small_letters(self, read, given):
        deep_files = mimic3_files(".gz", "files/1.4/", lambda names: [name.lower() for name in names])
        data = read({**dict.fromkeys(mimic3_files()), **deep_files})
        assert data.info.rows == {"train": 3, "validation": 1, "test": 1}
        (given / "lists").rename(given / "mimic3")
        assert read(splits=given).info.fingerprint == data.info.fingerprint

    def test_the_published_counts_are_accepted(self, read, monkeypatch):
        counts = {"train": 3, "validation": 1, "test": 1, "codes": 7, "codes a row": 2.0}
        monkeypatch.setitem(mimic.PUBLISHED_3, "full", counts)
        assert read(check_counts=True).info.rows["train"] == 3
        counts["codes a row"] = 2.4
        assert read(check_counts=True, allow_untrained=True).info.space("codes").n_classes == 9


def test_clean_text_drops_numbers_punctuation_and_brackets():
    assert clean_text(REPORT) == "admission date she said no pain took 250mg of"
    assert clean_text("Name: ___ [**Hospital 18**] 12,5 µg/L é") == "name hospital µg l é"


def test_clean_tokens_keeps_the_marks_of_mimic_4():
    text = clean_tokens("Name: ___\nUnit No: ___ 12,5 µg/L 250mg Dr.___18 [x_2] 07")
    assert text == "name ___ unit no ___ µg l 250mg dr ___18 x_2"


STAYS_4 = [
    # Patient, admission, version, diagnoses, procedures.
    ("10000032", "22595853", "9", ["5723", "07070", "42731"], ["5491"]),
    ("10000032", "22841357", "9", ["07070", "42731"], []),
    ("10000084", "23052089", "10", ["G3183", "I10", "M1A0"], ["0QS734Z"]),
    ("10000117", "22927623", "10", ["R1310", "I10"], []),
    ("10000248", "20600184", "10", ["I10", "Z3A20"], []),
]


def mimic4_files(stays=STAYS_4):
    diagnoses = [(p, a, n, c, v) for p, a, v, codes, _ in stays for n, c in enumerate(codes, 1)]
    procedures = [
        (p, a, n, "2180-05-07", c, v) for p, a, v, _, codes in stays for n, c in enumerate(codes, 1)
    ]
    texts = [
        (f"{p}-DS-{n}", p, a, "DS", n, "2180-05-07 00:00:00", "", f' \nName:  ___ , "{a}x"\n')
        for n, (p, a, *_) in enumerate(stays, 21)
    ]
    return {
        "hosp/diagnoses_icd.csv.gz": gzip.compress(written(CODES_4, diagnoses)),
        "hosp/procedures_icd.csv.gz": gzip.compress(written(PROCEDURES_4, procedures)),
        "note/discharge.csv.gz": gzip.compress(written(NOTES_4, texts)),
    }


LISTS_4 = {
    **lists("22595853", "22841357", "", "lists/mimic4_icd9"),
    **lists("22595853", "22841357", "", "lists/mimic4_icd9", "50"),
    **lists("23052089", "22927623", "20600184", "lists/mimic4_icd10"),
}


class TestMimic4(ClinicalTestCase):
    name = "mimic4"
    files = {**mimic4_files(), **{name: ids.lstrip("\n") for name, ids in LISTS_4.items()}}
    counts = "allowed: train 110,442, validation 4,017, test 7,851, codes 25,230"
    touched = ("hosp/diagnoses_icd.csv.gz", "note/discharge.csv.gz")
    warts = (
        Wart({"hosp/diagnoses_icd.csv.gz": None}, "diagnoses_icd"),
        Wart({"note/discharge.csv.gz": None}, "files of MIMIC-IV-Note v2.2 (PhysioNet) are missing"),
        Wart({}, "or TOP_50_CODES.csv", {"version": 9, "codes": 50}),
        Wart({}, "MIMIC-IV-ICD by Nguyen et al. (2023)", {"splits": None}),
    )

    def test_icd10_codes_stay_as_they_are_written(self, read):
        data = read()
        assert rows_of(data, "codes") == {
            "23052089": ("train", "name ___ 23052089x", ["0QS734Z", "G3183", "I10", "M1A0"]),
            "22927623": ("validation", "name ___ 22927623x", ["I10"]),
            "20600184": ("test", "name ___ 20600184x", ["I10"]),
        }
        chapters = ["G00-G99", "I00-I99", "M00-M99", "procedures 0"]
        assert rows_of(data, "chapters")["23052089"][2] == chapters
        warnings = ("codes: every row has I10", "chapters: every row has I00-I99")
        assert check(data.place).warnings == warnings

    def test_icd9_codes_have_their_dots_and_the_fifty_come_from_the_lists(self, read):
        labels = {"22595853": ["070.70", "427.31", "54.91", "572.3"], "22841357": ["070.70", "427.31"]}
        assert labels_of(read(version=9)) == labels
        top = {"lists/mimic4_icd9/TOP_50_CODES.csv": "427.31\n54.91\n"}
        top_labels = {"22595853": ["427.31", "54.91"], "22841357": ["427.31"]}
        assert labels_of(read(top, version=9, codes=50)) == top_labels

    def test_the_lists_of_the_other_version_name_no_admission(self, read, given):
        with pytest.raises(UserError, match="no training one has a note and a code"):
            read(version=9, splits=given / "lists/mimic4_icd10")

    def test_notes_may_lie_elsewhere(self, read, given, tmp_path):
        (given / "note").rename(tmp_path / "notes")
        assert read(notes=tmp_path / "notes").info.rows == {"train": 1, "validation": 1, "test": 1}

    def test_a_seeded_split_keeps_a_patient_together_and_counts_the_codes(self, read, given):
        stays = [
            (str(10_000 + n // 2), str(20_000 + n), "10", ["I10", f"A{n % 60 // 2:02}", f"B{n % 7}1"], [])
            for n in range(400)
        ]
        data = read(mimic4_files(stays), splits="seeded", check_counts=True)
        assert data.info.notes == ()
        split = splits_of(data)
        patient = {admission: patient for patient, admission, *_ in stays}
        assert len(split) == 400
        assert len({(patient[row], split_name) for row, split_name in split.items()}) == 200
        assert set(split.values()) == {"train", "validation", "test"}
        top_data = read(splits="seeded", codes="50")
        assert top_data.info.space("codes").n_classes == 38
        assert splits_of(top_data) == split
        assert mimic.state_4(mimic.Mimic4Options(path=given, splits="seeded"))

    def test_a_seeded_split_is_compared_with_the_fractions_of_patients(self, read):
        stays = [(str(n // 30), str(20_000 + n), "10", ["I10"], []) for n in range(300)]
        (note,) = read(mimic4_files(stays), splits="seeded").info.notes
        assert "where 90 / 3.33 / 6.67 were wanted: admissions of a patient share a split" in note


# The functions that format a code and find its chapter, and cases: a code, its formatted form, its chapter.
CODES = (
    (icd9_diagnosis, icd9_diagnosis_chapter, """
        4019 401.9 390-459, 486 486 460-519, 0117 011.7 001-139, V5861 V58.61 V01-V91,
        E8791 E879.1 E000-E999, E849 E849 E000-E999, 7 7 other"""),
    (icd9_procedure, icd9_procedure_chapter, """
        0117 01.17 procedures-01-05, 117 11.7 procedures-08-16, 3893 38.93 procedures-35-39,
        0066 00.66 procedures-00, 9 9 procedures-other"""),
    (str, icd10_diagnosis_chapter, """
        A000 A000 A00-B99, C7A1 C7A1 C00-D49, D500 D500 D50-D89, O9A2 O9A2 O00-O9A, Y929 Y929 V00-Y99"""),
    (str, icd10_procedure_section, "02HV33Z 02HV33Z procedures-0"),
)  # fmt: skip


@pytest.mark.parametrize(("write", "chapter", "cases"), CODES)
def test_codes_have_dots_and_chapters(write, chapter, cases):
    for case in cases.split(","):
        code, expected, chapter_name = case.split()
        assert write(code) == expected
        assert chapter(expected) == chapter_name.replace("procedures-", "procedures ")
