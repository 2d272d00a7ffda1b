"""Layouts of public data files, filled with made-up rows, and how `mlcl init` must read each of them.

Every layout has 240 rows of four topics. The texts contain the topics' words, the images their colours.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from mlcl.service.starter.table_options import UserOptions

TOPICS = {
    "sport": "match goal team", "music": "song band concert", "law": "court judge trial", "food": "bread soup"
}  # fmt: skip
NAMES = tuple(TOPICS)
TAGS = {"sport": "c#", "music": "node.js", "law": "asp.net-core", "food": "html"}
COLOURS = {"sport": (220, 30, 30), "music": (30, 200, 30), "law": (30, 30, 220), "food": (200, 200, 40)}
ROWS = [
    (i, (NAMES[i % 4],) if i % 3 else tuple(dict.fromkeys((NAMES[i % 4], NAMES[(i // 5 + 1) % 4]))))
    for i in range(240)
]
"""The number and the topics, one or two, of each row."""
Files = Mapping[str, bytes]


def body(i, topics):
    """Returns a text with the words of the topics."""
    words = " ".join(TOPICS[topic] for topic in topics)
    return f"They talked about {words}, and of matter {i} that was new"


def png(i, topics):
    """Returns a small PNG image in the colours of the topics."""
    pixels = np.random.default_rng(i).integers(0, 25, (8, 8, 3))
    for k, topic in enumerate(topics):
        pixels[4 * k // len(topics) :] += np.asarray(COLOURS[topic])
    with io.BytesIO() as file:
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "PNG")
        return file.getvalue()


def table(header, row: Callable, delimiter=",", encoding="utf-8", rows=ROWS, quoting=csv.QUOTE_MINIMAL):
    """Returns a CSV file, without a header if `header` is None."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, quoting=quoting)
    writer.writerows([*([header] if header else []), *(row(i, topics) for i, topics in rows)])
    return file.getvalue().encode(encoding)


def labels(write, **how):
    """Returns a CSV file of texts and of labels, which `write` makes from the topics of a row."""
    return table(("text", "labels"), lambda i, t: (body(i, t), write(i, t)), **how)


def objects(row: Callable, array=False):
    """Returns rows as JSON lines, or as one JSON array."""
    rows = [row(i, topics) for i, topics in ROWS]
    return (json.dumps(rows) if array else "\n".join(map(json.dumps, rows))).encode()


def parquet(columns, metadata=None):
    """Returns a Parquet file with the metadata of Hugging Face's datasets."""
    arrow_table = pa.table({name: [make(i, topics) for i, topics in ROWS] for name, make in columns.items()})
    features = {b"huggingface": json.dumps({"info": {"features": metadata}}).encode()} if metadata else {}
    sink = pa.BufferOutputStream()
    pq.write_table(
        arrow_table.replace_schema_metadata({**(arrow_table.schema.metadata or {}), **features}), sink
    )
    return sink.getvalue().to_pybytes()


def flags(topics, yes=1, no=0):
    return [yes if name in topics else no for name in NAMES]


def shares(i, topics):
    return [round(0.6 + i % 4 / 10, 2) if name in topics else round(i % 5 / 12, 3) for name in NAMES]


def images(folder, name="{i}.png"):
    """Returns an image file for each row."""
    return {f"{folder}/{name.format(i=i, topic=topics[0])}": png(i, topics) for i, topics in ROWS}


@dataclass(frozen=True)
class Layout:
    """The files of a data set, and what `mlcl init` reads in them.

    `says` are parts of the lines that init prints, `labels` the classes that it reads. `paths` are given to
    init, by default all files, with the user's `options`.
    """

    files: Files
    says: tuple[str, ...]
    labels: tuple[str, ...] = NAMES
    options: UserOptions = field(default_factory=UserOptions)
    paths: tuple[str, ...] = ()


LAYOUTS = {
    "six columns of 0 and 1, one of which begins late": Layout(
        {"train.csv": table(("id", "comment_text", *NAMES, "threat"),
                            lambda i, t: (f"{i:04x}e5", body(i, t), *flags(t), int(i > 230)))},
        ("5 columns of 0 and 1 are one label space", "id: the column id"), (*NAMES, "threat"),
    ),
    "shares of votes": Layout(
        {"civil.csv": table(("id", "comment_text", *NAMES, "likes"),
                            lambda i, t: (i, body(i, t), *shares(i, t), i % 7))},
        ("shares from 0.5 on are labels", "not read: the column likes"), options=UserOptions(threshold=0.5),
    ),
    "tags in angle brackets": Layout(
        {"Questions.csv": table(("Id", "Body", "Tags"), lambda i, t: (
            i, f"<p>{body(i, t)}</p>", "".join(f"<{TAGS[n]}>" for n in t)))},
        ("labels stand in <>",), tuple(TAGS.values()),
    ),
    "title and body, tags divided by blanks": Layout(
        {"Train.csv": table(("Id", "Title", "Body", "Tags"), lambda i, t: (
            i, f"Question {i}", body(i, t), " ".join(t)), quoting=csv.QUOTE_ALL)},
        ("divided at ' '", "text: the columns Title, Body, which are joined"),
        options=UserOptions(text=("Title", "Body")),
    ),
    "JSON lines named .json, categories divided by blanks": Layout(
        {"metadata.json": objects(lambda i, t: {
            "id": f"0704.{i:04}", "title": f"Paper {i}", "abstract": body(i, t),
            "categories": " ".join(f"cs.{n}" for n in t), "doi": None})},
        ("divided at ' '", "id: the column id"), tuple(f"cs.{name}" for name in NAMES),
    ),
    "genres divided at |, keywords of which most are rare": Layout(
        {"movies.csv": table(("movieId", "overview", "genres", "keywords"), lambda i, t: (
            i, body(i, t), "|".join(t), f"word{i}|of{i}|set{i % 9}"))},
        ("divided at '|'", "not read: the column keywords, which may be labels"),
    ),
    "JSON lists of objects in CSV": Layout(
        {"tmdb.csv": table(("budget", "genres", "id", "overview"), lambda i, t: (
            i * 1000, json.dumps([{"id": NAMES.index(n), "name": n} for n in t]), i, body(i, t)))},
        ("the column genres, several a row",),
    ),
    "Python lists in CSV, and the same as columns of 0 and 1": Layout(
        {"pubmed.csv": table(("Title", "abstractText", "mesh", *NAMES),
                             lambda i, t: (f"On {i} of it", body(i, t), str(list(t)), *flags(t)))},
        ("left out: the column mesh says the same as the columns sport, music",),
    ),
    "an index without a name, counts of votes, a class in numbers": Layout(
        {"labeled_data.csv": table(("", "count", "offensive", "class", "tweet"), lambda i, t: (
            i, 3, i % 5 // 2, NAMES.index(t[0]), body(i, t)))},
        ("labels: the column class, one a row", "not read: the column offensive"), ("0", "1", "2", "3"),
    ),
    "paths of a product taxonomy": Layout(
        {"products.tsv": table(("sku", "description", "category"), lambda i, t: (
            f"s{i}", body(i, t), f"Goods > {'Free' if t[0] in NAMES[:2] else 'Daily'} > {t[0]}"), "\t")},
        ("a path of levels divided at '>'", "with kind single it is one class"),
    ),
    "paths in lists of one": Layout(
        {"flipkart.csv": table(("uniq_id", "description", "product_category_tree"), lambda i, t: (
            f"{i:x}", body(i, t), json.dumps([f"Goods >> {t[0]}"])))},
        ("a path of levels divided at '>>'",),
    ),
    "two files without a header, numbers for classes": Layout(
        {name: table(None, lambda i, t: (NAMES.index(t[0]) + 1, f"Title {i}", body(i, t)),
                     rows=ROWS[start::3], quoting=csv.QUOTE_ALL)
         for start, name in enumerate(("train.csv", "test.csv"))},
        ("text: the columns column2, column3", "no validation rows are given"), ("1", "2", "3", "4"),
        UserOptions(header=False, text=("column2", "column3"), labels=("column1",)),
    ),
    "tabs without a header, bare quotes, numbers divided at commas": Layout(
        {"train.tsv": "".join(f'"{body(i, t)}\t{",".join(str(NAMES.index(n)) for n in t)}\teeb{i:03x}\n'
                              for i, t in ROWS).encode()},
        ("divided at ','",), ("0", "1", "2", "3"),
        UserOptions(header=False, text=("column1",), labels=("column2",)),
    ),
    "tabs in a .txt file with a header that has commas": Layout(
        {"2018-E-c-train.txt": table(("ID", "Tweet, cleaned", *NAMES),
                                     lambda i, t: (f"en-{i}", body(i, t), *flags(t)), "\t")},
        ("4 columns of 0 and 1 are one label space",),
    ),
    "Parquet with names in its metadata": Layout(
        {"train.parquet": parquet(
            {"text": body, "labels": lambda i, t: [NAMES.index(n) for n in t], "id": lambda i, t: f"e{i}"},
            {"labels": {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}})},
        ("the numbers are read as the class names that the file gives",),
    ),
    "Parquet with lists of 0 and 1": Layout(
        {"hot.parquet": parquet({"text": body, "labels": lambda i, t: flags(t, 1.0, 0.0)})},
        ("4 numbers a row are 0 and 1 for each of 4 classes",), options=UserOptions(classes=NAMES),
    ),
    "texts as lists of paragraphs, labels as lists of numbers": Layout(
        {"cases.jsonl": objects(lambda i, t: {
            "text": [f"{n}." for n in body(i, t).split(", ")], "labels": [NAMES.index(n) for n in t]})},
        ("text: the column text",), ("0", "1", "2", "3"),
    ),
    "fastText": Layout(
        {"cooking.train": "".join(" ".join([*(f"__label__{n}" for n in t), body(i, t)]) + "\n"
                                  for i, t in ROWS).encode()},
        ("labels: the column labels, several a row",),
    ),
    "levels with a name below two parents": Layout(
        {"reviews.csv": table(("Title", "Text", "Cat1", "Cat2"), lambda i, t: (
            f"No {i}", body(i, t), "fun" if t[0] in NAMES[:2] else "life",
            "other" if t[0] in ("music", "food") else t[0]))},
        ("told apart by their path, such as other below fun",), ("sport", "fun/other", "law", "life/other"),
        UserOptions(labels=("Cat1", "Cat2"), kind="path"),
    ),
    "a JSON array, the text a list of words": Layout(
        {"cooking.json": objects(
            lambda i, t: {"id": i, "cuisine": t[0], "ingredients": body(i, t).split()}, array=True)},
        ("labels: the column cuisine, one a row",),
        options=UserOptions(text=("ingredients",), labels=("cuisine",)),
    ),
    "semicolons, cp1252 and words for 0 and 1": Layout(
        {"Kommentare.csv": table(("Nr", "Text", *NAMES), lambda i, t: (
            i, f"Größe: {body(i, t)}", *flags(t, "yes", "no")), ";", "cp1252")},
        ("4 columns of 0 and 1 are one label space",), options=UserOptions(encoding="cp1252"),
    ),
    "blank, -1, 0 and 1 beside paths of images": Layout(
        {**images("CheXpert-small/train"),
         "CheXpert-small/train.csv": table(("Path", "Sex", "Age", *NAMES), lambda i, t: (
             f"CheXpert-small/train/{i}.png", "FM"[i % 2], i % 50,
             *("" if i % 9 == k else -1.0 if i % 11 == k else float(v) for k, v in enumerate(flags(t)))))},
        ("are missing: no label", "are -1, uncertain: loss and metrics leave them out"),
        options=UserOptions(missing="negative", uncertain="ignore"), paths=("CheXpert-small/train.csv",),
    ),
    "names of images in other folders": Layout(
        {**images("images_001/images"),
         "Data_Entry.csv": table(("Image Index", "Finding Labels", "Patient ID"),
                                 lambda i, t: (f"{i}.png", "|".join(t), i // 2))},
        ("divided at '|'", "group: the column Patient ID"),
        options=UserOptions(group="Patient ID"), paths=("Data_Entry.csv",),
    ),
    "names of images without their suffix": Layout(
        {**images("train-png", "train_{i}.png"),
         "train_v2.csv": table(("image_name", "tags"), lambda i, t: (f"train_{i}", " ".join(t)))},
        ("image: the column image_name", "divided at ' '"), paths=("train_v2.csv",),
    ),
    "folders of splits, doubled, and one without classes": Layout(
        {f"scenes/seg_{s}/seg_{s}/{t[0]}/{i}.png": png(i, t[:1])
         for s, m in (("train", 0), ("test", 1)) for i, t in ROWS if i % 4 != 0 or i % 3 == m}
        | {f"scenes/seg_pred/seg_pred/{i}.png": png(i, t) for i, t in ROWS[:9]},
        ("images without a class are left out: 9", "rows with the content of a training row"),
        paths=("scenes",),
    ),
    "Training and Testing, a suffix that is seldom": Layout(
        {f"tumours/{('Training', 'Testing')[i % 5 == 0]}/{t[0]}/a ({i}).{('png', 'jfif')[i % 2]}":
         png(i, t[:1]) for i, t in ROWS}
        | {"tumours/Training/.DS_Store": b"x", "tumours/Training/law/notes.txt": b"x"},
        ("files that are no images, which are left out: 1 (.txt 1)",), paths=("tumours",),
    ),
}  # fmt: skip
"""The layouts by name, first those of texts, then those of images."""
