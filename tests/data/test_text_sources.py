"""The sources of public text distributions, on small files in the real formats with their real oddities."""

import gzip
import json

import pytest

from mlcl.data import Dataset
from mlcl.data.sources import aapd, beeradvocate, goemotions, rcv1, reuters21578, tripadvisor
from mlcl.data.split_assignment import draw, halves, words_of
from mlcl.data.validation import check
from mlcl.errors import UserError
from mlcl.testing.sources import SourceTestCase, Wart


@pytest.fixture
def folder(tmp_path):
    """Writes files into a folder."""

    def folder(files, name="given"):
        for file, content in files.items():
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name / file).write_bytes(data)
        return tmp_path / name

    return folder


@pytest.fixture
def read(tmp_path):
    """Runs a source, checks what it wrote, and gives id to (split, text, label names by space)."""

    def read(source, path, seed=0, **options):
        made = tmp_path / "made"
        source.SOURCE.write(made, source.SOURCE.options(path=path, check_counts=False, **options), seed)
        check(made)
        rows = rows_of(Dataset.open(made))
        made.rename(tmp_path / f"made-{len(list(tmp_path.iterdir()))}")
        return rows

    return read


def rows_of(data):
    rows = {}
    for name in data.info.rows:
        split = data.split(name)
        labels = {
            name: named(split.labels(name), space)
            for name, space in data.info.label_spaces.items()
            if space.kind != "hierarchy"
        }
        for i, (row_id, text) in enumerate(zip(split.ids, split.texts(), strict=True)):
            rows[row_id] = (name, text, {space: values[i] for space, values in labels.items()})
    return rows


def named(labels, space):
    if space.kind == "aspects":
        return labels.tolist()
    return [[space.classes[c] for c in row] for row in labels.lists()]


def refused(source, path, tmp_path, **options):
    with pytest.raises(UserError) as error:
        source.SOURCE.write(tmp_path / "no", source.SOURCE.options(path=path, **options), 0)
    assert not (tmp_path / "no").exists()
    return error.value.line()


# GoEmotions

EMOTIONS = "joy\ngrief\nanger\nneutral"
GOEMOTIONS = {
    "emotions.txt": EMOTIONS,
    "ekman_mapping.json": '{\n"anger": ["anger"],\n"joy": ["joy"],\n"sadness": ["grief"]\n}',
    "sentiment_dict.json": '{"positive": ["joy"], "negative": ["grief", "anger"]}',
    "train.tsv": 'He said "no\t0,1\tee1\nA \u2028 line and a \x85 break\t3\tee2\nBoth\t1,2\tee3\n',
    "dev.tsv": "Fine 😩\t3\tee4\n",
    "test.tsv": "Good\t0\tee5\n",
}


def test_goemotions(folder, read):
    rows = read(goemotions, folder(GOEMOTIONS))
    assert {key: row[0] for key, row in rows.items()} == {
        **dict.fromkeys(("ee1", "ee2", "ee3"), "train"),
        "ee4": "validation",
        "ee5": "test",
    }
    assert [row[1] for row in rows.values()] == [
        'He said "no',
        "A \u2028 line and a \x85 break",
        "Both",
        "Fine 😩",
        "Good",
    ]
    assert [row[2]["emotion"] for row in rows.values()] == [
        ["joy", "grief"],
        ["neutral"],
        ["grief", "anger"],
        ["neutral"],
        ["joy"],
    ]
    assert rows["ee3"][2] == {
        "emotion": ["grief", "anger"],
        "ekman": ["anger", "sadness"],
        "sentiment": ["negative"],
    }
    assert rows["ee4"][2]["ekman"] == rows["ee4"][2]["sentiment"] == ["neutral"]


def test_goemotions_is_a_hierarchy(folder, tmp_path):
    options = goemotions.SOURCE.options(path=folder(GOEMOTIONS), check_counts=False)
    info = goemotions.SOURCE.write(tmp_path / "made", options, 0)
    path, sentiment, ekman = (info.label_spaces[name] for name in ("path", "sentiment", "ekman"))
    assert path.levels == ("sentiment", "ekman", "emotion")
    of_ekman, of_emotion = path.parents
    assert [ekman.classes[group] for group in of_emotion] == ["joy", "sadness", "anger", "neutral"]
    assert {ekman.classes[i]: sentiment.classes[group] for i, group in enumerate(of_ekman)} == {
        "anger": "negative",
        "joy": "positive",
        "sadness": "negative",
        "neutral": "neutral",
    }


class TestGoemotions(SourceTestCase):
    name = "goemotions"
    files = GOEMOTIONS
    options = {"check_counts": False}
    warts = (
        Wart({"dev.tsv": "Fine\t4\tee4\n"}, "dev.tsv: line 1 is no text, numbers of emotions and id"),
        Wart({"dev.tsv": "Fine\t-1\tee4\n"}, "allowed: 0 to 3"),
        Wart({"dev.tsv": "Fine\t3\n"}, "line 1 is no text"),
        Wart({"train.tsv": b"ok\t0\te1\n\xff\t0\te2\n"}, "train.tsv: line 2 is no text"),
        Wart({"ekman_mapping.json": '{"joy": ["joy"]}'}, "emotions have no group; found: grief, anger"),
        Wart({"sentiment_dict.json": "[]"}, "not an object of lists of emotions"),
        Wart({"sentiment_dict.json": "[" * 100_000}, "sentiment_dict.json: not valid JSON"),
        Wart(
            {"sentiment_dict.json": '{"a": ["joy"], "b": ["joy"]}'}, "an emotion comes twice; found: joy, joy"
        ),
        Wart({"emotions.txt": f"joy\n{EMOTIONS}"}, "emotions.txt: names a class twice; found: joy"),
        Wart({"emotions.txt": "\n"}, "emotions.txt: names no class"),
    )


def test_a_byte_order_mark_is_no_part_of_a_name(folder, read):
    marked = GOEMOTIONS | {"emotions.txt": f"\ufeff{EMOTIONS}", "test.tsv": "\ufeffGood\t0\tee5\n"}
    assert read(goemotions, folder(marked))["ee5"][1:] == (
        "Good",
        {"emotion": ["joy"], "ekman": ["joy"], "sentiment": ["positive"]},
    )


def test_a_part_of_a_set_may_test_what_it_does_not_train(folder, read):
    rows = read(goemotions, folder(GOEMOTIONS | {"train.tsv": "Hm\t3\tee1\n"}))
    assert rows["ee5"][2]["emotion"] == ["joy"]


# Reuters-21578


def story(number, split, topics, text, yes="YES"):
    named = "".join(f"<D>{topic}</D>" for topic in topics)
    return (
        f'<REUTERS TOPICS="{yes}" LEWISSPLIT="{split}" CGISPLIT="TRAINING-SET" OLDID="1" NEWID="{number}">\n'
        f"<DATE>26-FEB-1987 15:01:01.79</DATE>\n<TOPICS>{named}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n"
        "<UNKNOWN> \n&#5;&#5;&#5;C T\n&#22;&#22;&#1;f0704&#31;reute\nu f BC-OIL-&lt;SRD>   02-26</UNKNOWN>\n"
        f"{text}\n</REUTERS>\n"
    )


def normal(title, body):
    return (
        f"<TEXT>&#2;\n<TITLE>{title}</TITLE>\n<DATELINE>    SALVADOR, Feb 26 - </DATELINE>"
        f"<BODY>{body}\n Reuter\n&#3;</BODY></TEXT>"
    )


BRIEF = (
    '<TEXT TYPE="BRIEF">&#2;\n******<TITLE>GENCORP 1ST QTR &amp; SHR</TITLE>Blah blah blah.\n&#3;\n\n</TEXT>'
)
UNPROC = '<TEXT TYPE="UNPROC">&#2;\nRaw prices\n wheat 2.55\n&#3;</TEXT>'
STORIES = [
    story(1, "TRAIN", ["cocoa", "odd"], normal("BAHIA &lt;BAC> REVIEW", "Showers \xfc\x7f fell\nin Bahia.")),
    story(2, "TRAIN", ["earn"], BRIEF),
    story(3, "TRAIN", ["earn"], UNPROC),
    story(4, "TRAIN", ["odd"], normal("ONLY IN TRAIN", "x")),
    story(5, "TRAIN", [], normal("NO TOPIC", "x")),
    story(6, "TRAIN", ["earn"], normal("NOT IN MODAPTE", "x"), yes="NO"),
    story(7, "NOT-USED", ["earn"], normal("NOT USED", "x")),
    story(14826, "TEST", ["cocoa", "earn", "new"], normal("TEST", "y")),
]
HEAD = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'


def reuters(stories=STORIES):
    return {f"reut2-{n:03}.sgm": (HEAD + "".join(stories[n : n + 1])).encode("latin-1") for n in range(22)}


def test_reuters(folder, read):
    rows = read(reuters21578, folder(reuters()), validation=0)
    assert rows == {
        "1": ("train", "BAHIA <BAC> REVIEW\nShowers ü fell\nin Bahia.\n Reuter", {"topics": ["cocoa"]}),
        "2": ("train", "GENCORP 1ST QTR & SHR", {"topics": ["earn"]}),
        "3": ("train", "Raw prices\n wheat 2.55", {"topics": ["earn"]}),
        "14826": ("test", "TEST\ny\n Reuter", {"topics": ["cocoa", "earn"]}),
    }


def test_reuters_holds_out_training_stories_only_and_trains_every_topic(folder, read):
    more = [story(100 + i, "TRAIN", ["earn"], normal(f"T{i}", "x")) for i in range(40)]
    rows = read(reuters21578, folder(reuters([*STORIES, "".join(more)])), validation=0.5)
    splits = [row[0] for row in rows.values()]
    assert 10 < splits.count("validation") < 32
    assert (rows["1"][0], rows["14826"][0]) == ("train", "test")


def test_reuters_keeps_a_story_and_its_repetition_in_one_split(folder, read):
    texts = [normal(f"T{i // 2}", "x" if i % 2 else " X\n") for i in range(80)]
    more = [story(100 + i, "TRAIN", ["earn"], text) for i, text in enumerate(texts)]
    # The first pair alone has a topic of its own: it is trained whole.
    more[:2] = [story(100 + i, "TRAIN", ["rare"], texts[i]) for i in range(2)]
    tested = story(15000, "TEST", ["rare"], normal("R", "y"))
    rows = read(reuters21578, folder(reuters([*STORIES, "".join(more), tested])), validation=0.5)
    splits = [rows[str(100 + i)][0] for i in range(80)]
    assert splits[::2] == splits[1::2]
    assert splits[0] == "train"
    assert 10 < splits.count("validation") < 70


def test_reuters_names_a_story_without_a_number(folder, tmp_path):
    path = folder(reuters([STORIES[0] + STORIES[1].replace(' NEWID="2"', "")]))
    told = refused(reuters21578, path, tmp_path, check_counts=False)
    assert "reut2-000.sgm: story 2 of the file lacks an attribute" in told


def test_reuters_names_missing_and_cut_files_and_other_counts(folder, tmp_path):
    path = folder(reuters())
    told = refused(reuters21578, path, tmp_path)
    assert "not the published counts; check_counts=false accepts them; found: train 3, test 1" in told
    assert "allowed: train 7,770, test 3,019, classes 90" in told
    (path / "reut2-000.sgm").write_text(HEAD + STORIES[0][:-20])
    told = refused(reuters21578, path, tmp_path, check_counts=False)
    assert "reut2-000.sgm: story 1 of the file has no end" in told
    (path / "reut2-003.sgm").unlink()
    told = refused(reuters21578, path, tmp_path, check_counts=False)
    assert "Reuters-21578 (D. D. Lewis, distribution 1.0) are missing; found: no reut2-003.sgm" in told


class TestReuters(SourceTestCase):
    name = "reuters21578"
    files = reuters()
    options = {"check_counts": False, "validation": 0}
    warts = (
        Wart({"reut2-000.sgm": HEAD + STORIES[0][:-20]}, "reut2-000.sgm: story 1 of the file has no end"),
        Wart({"reut2-003.sgm": None}, "distribution 1.0) are missing; found: no reut2-003.sgm"),
    )


# AAPD

AAPD = {
    "text_train": "".join(f"abstract {i} , with tokens\n" for i in range(60)),
    "label_train": "cs.IT math.IT cs.IT\n" + "cs.IT\n" * 59,
    "text_val": "one\n",
    "label_val": "math.IT\n",
    "text_test": "two\nthree\n",
    "label_test": "math.IT cs.IT\ncs.IT\n",
}


def test_aapd(folder, read):
    rows = read(aapd, folder(AAPD))
    assert len(rows) == 63
    assert rows["train-0"] == ("train", "abstract 0 , with tokens", {"subjects": ["cs.IT", "math.IT"]})
    assert rows["train-59"] == ("train", "abstract 59 , with tokens", {"subjects": ["cs.IT"]})
    assert rows["val-0"] == ("validation", "one", {"subjects": ["math.IT"]})
    assert rows["test-0"] == ("test", "two", {"subjects": ["cs.IT", "math.IT"]})


def test_aapd_in_the_shares_of_the_paper(folder, read):
    path = folder(AAPD)
    one, other = (read(aapd, path, seed, split="paper") for seed in (0, 1))
    assert {key: row[1:] for key, row in one.items()} == {key: row[1:] for key, row in other.items()}
    splits = [row[0] for row in one.values()]
    assert splits != [other[key][0] for key in one]
    assert splits.count("train") > splits.count("test") > splits.count("validation") > 0


def test_aapd_says_where_shares_are_far_from_the_papers(folder, tmp_path):
    options = aapd.Options(path=folder(AAPD), check_counts=False, split="paper")
    (note,) = aapd.SOURCE.write(tmp_path / "made", options, 0).notes
    assert "% of the rows where 67.7 / 12 / 20.3 were wanted: of few rows a hash gives other shares" in note


class TestAapd(SourceTestCase):
    name = "aapd"
    files = AAPD
    options = {"check_counts": False}
    warts = (
        Wart({"text_val": "one\nmore\n"}, "text_val: not as many lines as label_val; found: 2; allowed: 1"),
        Wart({"label_test": "cs.IT\n\n"}, "label_test: line 2 is empty"),
        Wart({"text_test": "two\n \n"}, "text_test: line 2 is empty"),
    )


# RCV1-V2


def tokens(*numbers):
    return "".join(f".I {n}\n.W\nrecov recov {n}word\nexcit mexic\n\n" for n in numbers)


RCV1 = {
    "lyrl2004_tokens_train.dat": tokens(2286, 2287),
    "lyrl2004_tokens_test_pt0.dat.gz": gzip.compress(tokens(26151, 26152).encode()),
    "lyrl2004_tokens_test_pt1.dat": tokens(30000),
    "lyrl2004_tokens_test_pt2.dat": tokens(40000),
    "lyrl2004_tokens_test_pt3.dat": tokens(810596),
    "rcv1-v2.topics.qrels": "".join(
        f"{topic} {number} 1\n"
        for number, topics in {
            2286: ("E11", "ECAT"),
            2287: ("ECAT",),
            26151: ("ECAT",),
            26152: ("ECAT", "M11"),
            30000: ("ECAT",),
            40000: ("ECAT",),
            810596: ("ECAT",),
        }.items()
        for topic in topics
    ),
}


def test_rcv1(folder, read):
    rows = read(rcv1, folder(RCV1), validation=0)
    assert list(rows) == ["2286", "2287", "26151", "26152", "30000", "40000", "810596"]
    assert [row[0] for row in rows.values()] == ["train"] * 2 + ["test"] * 5
    assert rows["2286"][1:] == ("recov recov 2286word excit mexic", {"topics": ["E11", "ECAT"]})
    assert rows["26152"][1:] == ("recov recov 26152word excit mexic", {"topics": ["ECAT", "M11"]})


def test_rcv1_in_a_random_split(folder, read, monkeypatch):
    monkeypatch.setattr(rcv1, "RANDOM", {"validation": 2, "test": 1})
    splits = [row[0] for row in read(rcv1, folder(RCV1), split="random").values()]
    assert [splits.count(name) for name in ("train", "validation", "test")] == [4, 2, 1]


def test_rcv1_in_a_random_split_needs_a_story_for_training(folder, tmp_path, monkeypatch):
    told = refused(rcv1, folder(RCV1), tmp_path, split="random", check_counts=False)
    assert "too few stories for the random split; found: 7; allowed: more than 2,000" in told
    monkeypatch.setattr(rcv1, "RANDOM", {"validation": 4, "test": 3})
    assert "too few stories" in refused(rcv1, folder(RCV1), tmp_path, split="random", check_counts=False)


class TestRcv1(SourceTestCase):
    name = "rcv1"
    files = RCV1
    options = {"check_counts": False, "validation": 0}
    warts = (
        Wart(
            {"lyrl2004_tokens_test_pt3.dat": tokens(99)}, "line 1 has no topics or is there twice; found: 99"
        ),
        Wart(
            {"lyrl2004_tokens_test_pt3.dat": tokens(810596, 2286)}, "line 6 has no topics or is there twice"
        ),
        Wart({"lyrl2004_tokens_test_pt3.dat": ""}, "1 stories have topics and no words; found: 810596"),
        Wart({"rcv1-v2.topics.qrels": ""}, "rcv1-v2.topics.qrels: names no class"),
        Wart({"rcv1-v2.topics.qrels": "E11 2286 0\n"}, "line 1 is no topic, number and 1; found: E11 2286 0"),
        Wart(
            {"rcv1-v2.topics.qrels": "E11 2286 1\nE11 1\n"}, "line 2 is no topic, number and 1; found: E11 1"
        ),
    )


def test_rcv1_compares_with_the_published_counts(folder, tmp_path):
    assert "allowed: train 23,149, test 781,265, classes 103" in refused(rcv1, folder(RCV1), tmp_path)


# TripAdvisor

SMALL = {"train": 2, "test": 1, "validation": 1}
TAGS = [*tripadvisor.TAGS.values(), "Business service"]


def hotel(*reviews):
    head = "<Overall Rating>4\n<Avg. Price>$302\n<URL>http://www.tripadvisor.com/ShowUserReviews\n\n"
    return head + "".join(
        f"<Author>A TripAdvisor Member\n<Content>{content}\n<Date>Jan 6, 2009\n"
        '<img src="new.gif" alt="New"/>\n<No. Reader>-1\n<No. Helpful>-1\n'
        + "".join(f"<{tag}>{rating}\n" for tag, rating in zip(TAGS, (*ratings, -1), strict=True))
        + "\n"
        for content, ratings in reviews
    )


FULL = (4, 5, 3, 1, 2, 5, 4)
PARTLY = (4, -1, 0, 1, 2, 5, 4)
TRIPADVISOR = {
    "hotel_100504.dat": hotel(
        ("Stayed here. Good   showReview(19583769, 'full');", FULL),
        ("Misses ratings", PARTLY),
        ("", FULL),
        ("Stayed here. Good", FULL),
        ("Two\nlines", FULL),
    ).replace("\n", "\r\n"),
    "Review_Texts/hotel_9.dat": hotel(("Café 鈥檚", FULL), ("third", (1,) * 7)),
    "Review_Texts/hotel_99.dat": hotel(("Caf\xe9 too, in cp1252 \x93so\x94", FULL)).encode("latin-1"),
}


def test_tripadvisor(folder, read):
    rows = read(tripadvisor, folder(TRIPADVISOR), **(SMALL | {"train": 3}))
    assert {key: row[1] for key, row in rows.items()} == {
        "hotel_100504/0": "Stayed here. Good",
        "hotel_100504/4": "Two\nlines",
        "hotel_9/0": "Café 鈥檚",
        "hotel_9/1": "third",
        "hotel_99/0": "Café too, in cp1252 “so”",
    }
    assert sorted(row[0] for row in rows.values()) == ["test", "train", "train", "train", "validation"]
    assert rows["hotel_100504/0"][2] == {"sentiment": [3, 3, 2, 1, 1, 3, 3], "rating": list(FULL)}
    assert rows["hotel_9/1"][2] == {"sentiment": [1] * 7, "rating": [1] * 7}


def test_tripadvisor_with_missing_ratings_and_a_least_length(folder, read):
    path = folder(TRIPADVISOR)
    rows = read(tripadvisor, path, complete=False, **(SMALL | {"train": 4}))
    assert rows["hotel_100504/1"][2] == {
        "sentiment": [3, 0, 0, 1, 1, 3, 3],
        "rating": [4, 0, 0, 1, 2, 5, 4],
    }
    assert set(read(tripadvisor, path, min_words=3, train=1, test=1, validation=0)) == {
        "hotel_100504/0",
        "hotel_99/0",
    }


def test_tripadvisor_takes_a_review_once_whatever_its_spaces_and_marks(folder, read):
    copies = [("Good, and  quiet!", FULL), ("good and\nquiet", FULL), ("Quiet and good", FULL)]
    path = folder({"hotel_1.dat": hotel(*copies)})
    assert set(read(tripadvisor, path, train=1, test=1, validation=0)) == {"hotel_1/0", "hotel_1/2"}


def test_tripadvisor_loses_no_line_of_a_text(folder, read):
    path = folder({"hotel_1.dat": hotel(("One\n<B>bold\n<3 this\n<Note>\n</b>\nlast", FULL))})
    assert read(tripadvisor, path, train=1, test=0, validation=0)["hotel_1/0"][1] == "One\n<3 this\nlast"


def test_tripadvisor_names_a_hotel_that_is_there_twice(folder, tmp_path):
    path = folder({"a/hotel_1.dat": hotel(("x", FULL)), "b/hotel_1.dat": hotel(("y", FULL))})
    told = refused(tripadvisor, path, tmp_path, check_counts=False, **SMALL)
    assert "b/hotel_1.dat: this hotel is there twice; found: " in told


def test_tripadvisor_in_json(folder, read):
    ratings = {"Overall": "4.0", "Check in / front desk": "5", "Sleep Quality": "3", "Service": "1"}
    review = {"Ratings": ratings, "Title": "“Nice”", "Content": "We stayed.", "ReviewID": "UR1", "Date": "x"}
    given = {"Reviews": [review, review | {"Content": "Other", "Title": ""}], "HotelInfo": {"HotelID": "1"}}
    path = folder({"json/100506.json": json.dumps(given)})
    rows = read(tripadvisor, path, complete=False, train=2, test=0, validation=0)
    assert rows["100506/0"] == (
        "train",
        "Nice\nWe stayed.",
        {"sentiment": [3, 0, 0, 0, 0, 3, 1], "rating": [4, 0, 0, 0, 0, 5, 1]},
    )
    assert rows["100506/1"][1] == "Other"


def test_tripadvisor_names_what_is_wrong(folder, tmp_path):
    path = folder(TRIPADVISOR)
    assert "allowed: train 10,000, test 2,000" in refused(tripadvisor, path, tmp_path, **SMALL)
    told = refused(tripadvisor, path, tmp_path)
    assert "fewer reviews than train, test and validation ask for; found: 5; allowed: 13000" in told
    folder({"hotel_1.dat": hotel(("x", FULL), ("y", (6, *FULL[1:])))})
    told = refused(tripadvisor, path, tmp_path, check_counts=False, **SMALL)
    assert "hotel_1.dat: no rating, in the review at line 20; found: 6; allowed: 1, 2, 3, 4, 5" in told
    told = refused(tripadvisor, folder({"readme.txt": "x"}, "empty"), tmp_path)
    assert "no hotels of TripAdvisor here; allowed: a folder with hotel_<number>.dat" in told
    told = refused(tripadvisor, folder({"1.json": '{"Reviews": [{"Content": "x"}]}'}, "bad"), tmp_path)
    assert "1.json: no hotel of TripAdvisor; found: KeyError('Ratings')" in told
    told = refused(tripadvisor, folder({"1.json": "[" * 100_000}, "deep"), tmp_path)
    assert "1.json: no hotel of TripAdvisor; found: RecursionError" in told


def test_tripadvisor_follows_no_link_out_of_the_folder(folder, tmp_path):
    outside = folder({"hotel_7.dat": hotel(("secret", FULL))}, "outside") / "hotel_7.dat"
    path = folder(TRIPADVISOR)
    (path / "hotel_7.dat").symlink_to(outside)
    assert [file.name for file in tripadvisor.hotels(path)] == [
        "hotel_9.dat",
        "hotel_99.dat",
        "hotel_100504.dat",
    ]


class TestTripAdvisor(SourceTestCase):
    name = "tripadvisor"
    files = TRIPADVISOR
    options = {"check_counts": False, **SMALL}
    warts = (Wart({"1.json": "{}", **dict.fromkeys(TRIPADVISOR)}, "1.json: no hotel of TripAdvisor"),)


# BeerAdvocate


def beer(name, ratings, text):
    rated = zip(beeradvocate.REVIEWS.aspects, ratings, strict=True)
    return (
        f"beer/name: {name}\nbeer/beerId: 47986\nbeer/brewerId: 10325\nbeer/ABV: 5\nbeer/style: Hefeweizen\n"
        + "".join(f"review/{aspect}: {rating}\n" for aspect, rating in rated)
        + f"review/time: 1234817823\nreview/profileName: stcules\nreview/text: {text}\n\n"
    ).encode()


BEERS = (
    beer("Sausa Weizen", ("2.5", "2", "3.5", "4", "4.5"), "A lot of foam.\tBut a lot: 100%\t")
    + beer("No rating", ("0", "2", "3", "4", "5"), "Not rated")
    + beer("Over: lines", ("1", "1.5", "3", "5", "3"), "First\nsecond")
    + beer("Köstritzer", ("3", "3", "3", "3", "3"), "käse").decode().encode("latin-1")
    + beer("No text", ("3", "3", "3", "3", "3"), "")
)
BEER_ROWS = {
    "line-1": ("A lot of foam.\tBut a lot: 100%", [2.5, 2, 3.5, 4, 4.5], [1, 1, 2, 3, 3]),
    "line-29": ("First\nsecond", [1, 1.5, 3, 5, 3], [1, 1, 2, 3, 2]),
    "line-44": ("käse", [3] * 5, [2] * 5),
}


@pytest.mark.parametrize("file", ["beeradvocate.txt", "Beeradvocate.txt.gz"])
def test_beeradvocate(folder, read, file):
    path = folder({file: gzip.compress(BEERS) if file.endswith(".gz") else BEERS})
    rows = read(beeradvocate, path, train=1, test=1, validation=1)
    assert {key: (row[1], row[2]["rating"], row[2]["sentiment"]) for key, row in rows.items()} == BEER_ROWS
    assert sorted(row[0] for row in rows.values()) == ["test", "train", "validation"]


def test_half_stars_of_beeradvocate_can_be_rounded_up(folder, read):
    path = folder({"beeradvocate.txt": BEERS})
    rows = read(beeradvocate, path, train=1, test=1, validation=1, half_stars="up")
    assert {key: row[2]["sentiment"] for key, row in rows.items()} == {
        "line-1": [2, 1, 3, 3, 3],
        "line-29": [1, 1, 2, 3, 2],
        "line-44": [2] * 5,
    }
    assert {key: row[2]["rating"] for key, row in rows.items()} == {
        key: its[1] for key, its in BEER_ROWS.items()
    }


def test_beeradvocate_as_literals(folder, read, tmp_path):
    fields = {
        "beer/name": "Sausa 'Weizen'",
        "review/timeStruct": {"wday": 0},
        "review/text": "A lot\tof foam ",
    }
    lines = [
        repr(fields | {f"review/{a}": r for a, r in zip(beeradvocate.REVIEWS.aspects, ratings, strict=True)})
        for ratings in ((2.5, "4", 3.0, 3.5, 5), (0, 1, 1, 1, 1))
    ]
    path = folder({"beeradvocate.json.gz": gzip.compress("\n".join(lines).encode())})
    rows = read(beeradvocate, path, train=1, test=0, validation=0)
    assert rows == {
        "line-1": ("train", "A lot\tof foam", {"sentiment": [1, 3, 2, 2, 3], "rating": [2.5, 4, 3, 3.5, 5]})
    }
    path = folder({"beeradvocate.json": "{}\n__import__('os').system('true')\n"}, "bad")
    told = refused(beeradvocate, path, tmp_path, check_counts=False, **SMALL)
    assert "beeradvocate.json: no review at line 2" in told


def test_beeradvocate_names_what_is_wrong(folder, tmp_path):
    path = folder({"beeradvocate.txt": BEERS})
    told = refused(beeradvocate, path, tmp_path)
    assert "found: reviews 5; allowed: reviews 1,586,614" in told
    folder({"beeradvocate.txt": BEERS + beer("x", ("4.2", "1", "1", "1", "1"), "y")})
    told = refused(beeradvocate, path, tmp_path, check_counts=False, **SMALL)
    assert "beeradvocate.txt: no rating, in the review at line 72; found: 4.2; allowed: 1, 1.5" in told
    folder({"beeradvocate.txt.gz": gzip.compress(BEERS)[:-30]})
    told = refused(beeradvocate, path, tmp_path, check_counts=False, **SMALL)
    assert "beeradvocate.txt.gz: cannot be read; is it whole?" in told
    assert "no beeradvocate.txt.gz or beeradvocate.txt" in refused(
        beeradvocate, folder({"x": "y"}, "e"), tmp_path
    )


class TestBeerAdvocate(SourceTestCase):
    name = "beeradvocate"
    files = {"beeradvocate.txt": BEERS}
    options = {"check_counts": False, "train": 1, "test": 1, "validation": 1}
    warts = (
        Wart(
            {"beeradvocate.txt": BEERS + beer("x", ("4.2", "1", "1", "1", "1"), "y")}, "found: 4.2; allowed"
        ),
        Wart({}, "fewer reviews than train, test and validation ask for", {"train": 9}),
        Wart({"beeradvocate.txt": None}, "no beeradvocate.txt.gz or beeradvocate.txt"),
    )


# What they share


def test_copies_of_a_text_have_the_same_words():
    assert words_of("It's  GOOD,\nreally!") == words_of("it s good really") == "it s good really"
    assert words_of("!?") == "!?"


def test_halves_are_halves():
    half = list(halves([f"k{i}" for i in range(101)], 3).values())
    assert (half.count("validation"), half.count("test")) == (50, 51)


def test_a_path_may_begin_at_home(folder, read, monkeypatch):
    monkeypatch.setenv("HOME", str(folder(GOEMOTIONS).parent))
    assert len(read(goemotions, "~/given")) == 5
    assert goemotions.SOURCE.options(path="~nobody-of-this-name/x").path.name == "x"


def test_draw_is_of_exact_sizes_and_a_growing_later_split_moves_no_earlier_one():
    keys = [f"k{i}" for i in range(100)]
    drawn = draw(keys, 0, {"test": 10, "train": 30})
    more = draw(reversed(keys), 0, {"test": 10, "train": 60, "validation": 5})
    assert [list(drawn.values()).count(split) for split in ("test", "train")] == [10, 30]
    assert drawn.items() <= more.items()
    assert draw(keys, 1, {"test": 10, "train": 30}) != drawn
    assert len(draw(keys, 0, {"test": 1, "train": 1_000})) == 100
