"""Tests of the sources of public text sets, on small files in the original formats with their oddities."""

import gzip
import json

import pytest
from data.conftest import ANY, DistributionTestCase, rows_of, splits_of

from mlcl.data.sources import beeradvocate, goemotions, rcv1, tripadvisor
from mlcl.data.sources.common.reviews import PUBLISHED
from mlcl.testing.sources import Wart

EMOTIONS = "joy\ngrief\nanger\nneutral"


class TestGoemotions(DistributionTestCase):
    name = "goemotions"
    files = {
        "emotions.txt": EMOTIONS,
        "ekman_mapping.json": '{\n"anger": ["anger"],\n"joy": ["joy"],\n"sadness": ["grief"]\n}',
        "sentiment_dict.json": '{"positive": ["joy"], "negative": ["grief", "anger"]}',
        "train.tsv": 'He said "no\t0,1\tee1\nA \u2028 line and a \x85 break\t3\tee2\nBoth\t1,2\tee3\n',
        "dev.tsv": "Fine 😩\t3\tee4\n",
        "test.tsv": "Good\t0\tee5\n",
    }
    counts = "found: train 3, validation 1, test 1, classes 4, labels a row 1.4"
    warts = (
        Wart({"dev.tsv": "Fine\t4\tee4\n"}, "dev.tsv: line 1 is no text, numbers of emotions and id"),
        Wart({"dev.tsv": "Fine\t-1\tee4\n"}, "allowed: 0 to 3"),
        Wart({"dev.tsv": "Fine\t3\n"}, "line 1 is no text"),
        Wart({"train.tsv": b"ok\t0\te1\n\xff\t0\te2\n"}, "train.tsv: line 2 is no text"),
        Wart({"ekman_mapping.json": '{"joy": ["joy"]}'}, "emotions have no group; found: grief, anger"),
        Wart({"sentiment_dict.json": "[]"}, "not an object of lists of emotions"),
        Wart({"sentiment_dict.json": '{"a": ["joy"], "b": ["joy"]}'}, "an emotion comes twice; found: joy"),
        Wart({"emotions.txt": f"joy\n{EMOTIONS}"}, "emotions.txt: names a class twice; found: joy"),
        Wart({"emotions.txt": "\n"}, "emotions.txt: names no class"),
    )

    def test_comments_have_emotions_and_their_groups(self, read):
        assert rows_of(read()) == {
            "ee1": ("train", 'He said "no', ["joy", "grief"], ["joy", "sadness"], ["positive", "negative"]),
            "ee2": ("train", "A \u2028 line and a \x85 break", ["neutral"], ["neutral"], ["neutral"]),
            "ee3": ("train", "Both", ["grief", "anger"], ["anger", "sadness"], ["negative"]),
            "ee4": ("validation", "Fine 😩", ["neutral"], ["neutral"], ["neutral"]),
            "ee5": ("test", "Good", ["joy"], ["joy"], ["positive"]),
        }

    def test_the_groups_are_a_hierarchy(self, read):
        spaces = read().info.label_spaces
        assert spaces["path"].levels == ("sentiment", "ekman", "emotion")
        ekman_parents, emotion_parents = spaces["path"].parents
        ekman, sentiment = spaces["ekman"].classes, spaces["sentiment"].classes
        assert [ekman[group] for group in emotion_parents] == ["joy", "sadness", "anger", "neutral"]
        pairs = {"anger": "negative", "joy": "positive", "sadness": "negative", "neutral": "neutral"}
        assert {ekman[i]: sentiment[group] for i, group in enumerate(ekman_parents)} == pairs

    def test_a_byte_order_mark_is_no_part_of_a_name(self, read):
        files = {"emotions.txt": f"\ufeff{EMOTIONS}", "test.tsv": "\ufeffGood\t0\tee5\n"}
        assert rows_of(read(files))["ee5"] == ("test", "Good", ["joy"], ["joy"], ["positive"])

    def test_a_part_of_a_set_may_test_what_it_does_not_train(self, read):
        assert rows_of(read({"train.tsv": "Hm\t3\tee1\n"}))["ee5"][2] == ["joy"]

    def test_a_path_may_begin_at_home(self, read, given, monkeypatch):
        monkeypatch.setenv("HOME", str(given.parent))
        assert len(rows_of(read(path=f"~/{given.name}"))) == 5
        assert goemotions.SOURCE.options(path="~nobody-of-this-name/x").path.name == "x"


def story(number, split, topics, text, yes="YES"):
    topic_tags = "".join(f"<D>{topic}</D>" for topic in topics)
    return (
        f'<REUTERS TOPICS="{yes}" LEWISSPLIT="{split}" CGISPLIT="TRAINING-SET" OLDID="1" NEWID="{number}">\n'
        f"<DATE>26-FEB-1987 15:01:01.79</DATE>\n<TOPICS>{topic_tags}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n"
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


def reuters(*stories):
    """Returns the files of the distribution, with one story in each of the first files."""
    return {f"reut2-{n:03}.sgm": (HEAD + "".join(stories[n : n + 1])).encode("latin-1") for n in range(22)}


class TestReuters(DistributionTestCase):
    name = "reuters21578"
    files = reuters(*STORIES)
    options = {**ANY, "validation": 0}
    counts = "found: train 3, test 1, classes 2; allowed: train 7,770, test 3,019, classes 90"
    warts = (
        Wart({"reut2-000.sgm": HEAD + STORIES[0][:-20]}, "reut2-000.sgm: story 1 of the file has no end"),
        Wart({"reut2-003.sgm": None}, "distribution 1.0) are missing; found: no reut2-003.sgm"),
        Wart(
            {"reut2-000.sgm": STORIES[0] + STORIES[1].replace(' NEWID="2"', "")}, "story 2 of the file lacks"
        ),
    )

    def test_stories_of_every_type_are_read_and_the_split_is_modapte(self, read):
        assert rows_of(read()) == {
            "1": ("train", "BAHIA <BAC> REVIEW\nShowers ü fell\nin Bahia.\n Reuter", ["cocoa"]),
            "2": ("train", "GENCORP 1ST QTR & SHR", ["earn"]),
            "3": ("train", "Raw prices\n wheat 2.55", ["earn"]),
            "14826": ("test", "TEST\ny\n Reuter", ["cocoa", "earn"]),
        }

    def test_training_stories_alone_are_held_out_and_every_topic_is_trained(self, read):
        new_stories = "".join(story(100 + i, "TRAIN", ["earn"], normal(f"T{i}", "x")) for i in range(40))
        split = splits_of(read(reuters(*STORIES, new_stories), validation=0.5))
        assert 10 < list(split.values()).count("validation") < 32
        assert (split["1"], split["14826"]) == ("train", "test")

    def test_a_story_and_its_repetition_stay_in_one_split(self, read):
        texts = [normal(f"T{i // 2}", "x" if i % 2 else " X\n") for i in range(80)]
        # Only the first pair has the topic `rare` among training stories, so both of its stories must train.
        new_stories = [
            story(100 + i, "TRAIN", ["rare" if i < 2 else "earn"], text) for i, text in enumerate(texts)
        ]
        test_story = story(15000, "TEST", ["rare"], normal("R", "y"))
        split = splits_of(read(reuters(*STORIES, "".join(new_stories), test_story), validation=0.5))
        splits = [split[str(100 + i)] for i in range(80)]
        assert splits[::2] == splits[1::2]
        assert splits[0] == "train"
        assert 10 < splits.count("validation") < 70


class TestAapd(DistributionTestCase):
    name = "aapd"
    files = {
        "text_train": "".join(f"abstract {i} , with tokens\n" for i in range(60)),
        "label_train": "cs.IT math.IT cs.IT\n" + "cs.IT\n" * 59,
        "text_val": "one\n",
        "label_val": "math.IT\n",
        "text_test": "two\nthree\n",
        "label_test": "math.IT cs.IT\ncs.IT\n",
    }
    counts = "found: train 60, validation 1, test 2, classes 2, labels a row 1.0"
    warts = (
        Wart({"text_val": "one\nmore\n"}, "text_val: not as many lines as label_val; found: 2; allowed: 1"),
        Wart({"label_test": "cs.IT\n\n"}, "label_test: line 2 is empty"),
        Wart({"text_test": "two\n \n"}, "text_test: line 2 is empty"),
    )

    def test_abstracts_have_each_subject_once(self, read):
        rows = rows_of(read())
        assert len(rows) == 63
        assert rows["train-0"] == ("train", "abstract 0 , with tokens", ["cs.IT", "math.IT"])
        assert rows["train-59"] == ("train", "abstract 59 , with tokens", ["cs.IT"])
        assert rows["val-0"] == ("validation", "one", ["math.IT"])
        assert rows["test-0"] == ("test", "two", ["cs.IT", "math.IT"])

    def test_the_shares_of_the_paper_are_drawn_and_a_difference_is_noted(self, read):
        data, other_data = (read(seed=seed, split="paper") for seed in (0, 1))
        first, second = rows_of(data), rows_of(other_data)
        assert {key: row[1:] for key, row in first.items()} == {key: row[1:] for key, row in second.items()}
        assert first != second
        rows = data.info.rows
        assert rows["train"] > rows["test"] > rows["validation"] > 0
        (note,) = data.info.notes
        message = "where 67.7 / 12 / 20.3 were wanted: of few rows a hash gives other shares"
        assert f"% of the rows {message}" in note


def tokens(*numbers):
    return "".join(f".I {n}\n.W\nrecov recov {n}word\nexcit mexic\n\n" for n in numbers)


TOPICS = {2286: "E11 ECAT", 2287: "ECAT", 26151: "ECAT", 26152: "ECAT M11", 30000: "ECAT", 40000: "ECAT"}
TOPICS[810596] = "ECAT"
LAST, QRELS = "lyrl2004_tokens_test_pt3.dat", "rcv1-v2.topics.qrels"


class TestRcv1(DistributionTestCase):
    name = "rcv1"
    files = {
        "lyrl2004_tokens_train.dat": tokens(2286, 2287),
        "lyrl2004_tokens_test_pt0.dat.gz": gzip.compress(tokens(26151, 26152).encode()),
        "lyrl2004_tokens_test_pt1.dat": tokens(30000),
        "lyrl2004_tokens_test_pt2.dat": tokens(40000),
        LAST: tokens(810596),
        QRELS: "".join(f"{topic} {n} 1\n" for n, topics in TOPICS.items() for topic in topics.split()),
    }
    options = {**ANY, "validation": 0}
    counts = "allowed: train 23,149, test 781,265, classes 103"
    warts = (
        Wart({LAST: tokens(99)}, "line 1 has no topics or is there twice; found: 99"),
        Wart({LAST: tokens(810596, 2286)}, "line 6 has no topics or is there twice"),
        Wart({LAST: ""}, "1 stories have topics and no words; found: 810596"),
        Wart({QRELS: ""}, "rcv1-v2.topics.qrels: names no class"),
        Wart({QRELS: "E11 2286 0\n"}, "line 1 is no topic, number and 1; found: E11 2286 0"),
        Wart({QRELS: "E11 2286 1\nE11 1\n"}, "line 2 is no topic, number and 1; found: E11 1"),
        Wart({}, "too few stories for the random split; found: 7; allowed: more", {"split": "random"}),
    )

    def test_stories_follow_the_files_and_the_split_their_numbers(self, read):
        rows = rows_of(read())
        assert list(rows) == list(map(str, TOPICS))
        assert [row[0] for row in rows.values()] == ["train"] * 2 + ["test"] * 5
        assert rows["2286"][1:] == ("recov recov 2286word excit mexic", ["E11", "ECAT"])
        assert rows["26152"][1:] == ("recov recov 26152word excit mexic", ["ECAT", "M11"])

    def test_a_random_split_has_exact_sizes(self, read, monkeypatch):
        monkeypatch.setattr(rcv1, "RANDOM", {"validation": 2, "test": 1})
        assert read(split="random").info.rows == {"train": 4, "validation": 2, "test": 1}


SMALL = {"train": 2, "test": 1, "validation": 1}
ALL = {"test": 0, "validation": 0}
TAGS = [*tripadvisor.TAGS.values(), "Business service"]
FULL, PARTLY = (4, 5, 3, 1, 2, 5, 4), (4, -1, 0, 1, 2, 5, 4)


def hotel(*reviews):
    head = "<Overall Rating>4\n<Avg. Price>$302\n<URL>http://www.tripadvisor.com/ShowUserReviews\n\n"
    return head + "".join(
        f"<Author>A TripAdvisor Member\n<Content>{content}\n<Date>Jan 6, 2009\n"
        '<img src="new.gif" alt="New"/>\n<No. Reader>-1\n<No. Helpful>-1\n'
        + "".join(f"<{tag}>{rating}\n" for tag, rating in zip(TAGS, (*ratings, -1), strict=True))
        + "\n"
        for content, ratings in reviews
    )


HOTELS = {
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
NONE = dict.fromkeys(HOTELS)
"""Changes that remove every file of `HOTELS`."""


class TestTripAdvisor(DistributionTestCase):
    name = "tripadvisor"
    files = HOTELS
    counts = "found: train 2, test 1; allowed: train 10,000, test 2,000"
    options = {**ANY, **SMALL}
    warts = (
        Wart({"1.json": "{}", **NONE}, "1.json: no hotel of TripAdvisor"),
        Wart({"1.json": '{"Reviews": [{"Content": "x"}]}', **NONE}, "found: KeyError('Ratings')"),
        Wart({"readme.txt": "x", **NONE}, "allowed: a folder with hotel_<number>.dat"),
        Wart({"a/hotel_9.dat": hotel(("x", FULL))}, "a/hotel_9.dat: this hotel appears twice; found: "),
        Wart(
            {"hotel_1.dat": hotel(("x", FULL), ("y", (6, *FULL[1:])))}, "no rating, in the review at line 20"
        ),
        Wart({}, "fewer reviews than train, test and validation ask for; found: 5; allowed: 9", {"train": 7}),
    )

    def test_each_full_review_is_read_once_with_its_ratings(self, read):
        data = read(train=3)
        rows = rows_of(data)
        assert {key: row[1] for key, row in rows.items()} == {
            "hotel_100504/0": "Stayed here. Good",
            "hotel_100504/4": "Two\nlines",
            "hotel_9/0": "Café 鈥檚",
            "hotel_9/1": "third",
            "hotel_99/0": "Café too, in cp1252 “so”",
        }
        assert data.info.rows == {"train": 3, "validation": 1, "test": 1}
        assert rows["hotel_100504/0"][2:] == ([3, 3, 2, 1, 1, 3, 3], list(FULL))
        assert rows["hotel_9/1"][2:] == ([1] * 7, [1] * 7)

    def test_missing_ratings_are_0_and_short_reviews_may_be_left_out(self, read):
        rows = rows_of(read(complete=False, train=4))
        assert rows["hotel_100504/1"][2:] == ([3, 0, 0, 1, 1, 3, 3], [4, 0, 0, 1, 2, 5, 4])
        long_rows = rows_of(read(min_words=3, train=1, test=1, validation=0))
        assert set(long_rows) == {"hotel_100504/0", "hotel_99/0"}

    @pytest.mark.parametrize(
        ("reviews", "expected"),
        [
            (["Good, and  quiet!", "good and\nquiet", "Quiet and good"], {0, 2}),
            (["One\n<B>bold\n<3 this\n<Note>\n</b>\nlast"], {0}),
        ],
    )
    def test_copies_go_and_no_line_of_a_text_is_lost(self, read, reviews, expected):
        files = {**NONE, "hotel_1.dat": hotel(*((text, FULL) for text in reviews))}
        rows = rows_of(read(files, train=len(expected), **ALL))
        assert set(rows) == {f"hotel_1/{number}" for number in expected}
        if expected == {0}:
            assert rows["hotel_1/0"][1] == "One\n<3 this\nlast"

    def test_the_release_in_json(self, read):
        ratings = {"Overall": "4.0", "Check in / front desk": "5", "Sleep Quality": "3", "Service": "1"}
        review = {"Ratings": ratings, "Title": "“Nice”", "Content": "We stayed.", "ReviewID": "UR1"}
        hotel = {"Reviews": [review, review | {"Content": "Other", "Title": ""}], "HotelInfo": {}}
        rows = rows_of(read({**NONE, "json/100506.json": json.dumps(hotel)}, complete=False, train=2, **ALL))
        expected = ([3, 0, 0, 0, 0, 3, 1], [4, 0, 0, 0, 0, 5, 1])
        assert rows["100506/0"] == ("train", "Nice\nWe stayed.", *expected)
        assert rows["100506/1"][1] == "Other"

    def test_no_link_out_of_the_folder_is_followed(self, given, tmp_path):
        (tmp_path / "hotel_7.dat").write_text(hotel(("secret", FULL)))
        (given / "hotel_7.dat").symlink_to(tmp_path / "hotel_7.dat")
        names = [file.name for file in tripadvisor.hotels(given)]
        assert names == ["hotel_9.dat", "hotel_99.dat", "hotel_100504.dat"]


def beer(name, ratings, text):
    pairs = zip(beeradvocate.REVIEWS.aspects, ratings.split(), strict=True)
    return (
        f"beer/name: {name}\nbeer/beerId: 47986\nbeer/brewerId: 10325\nbeer/ABV: 5\nbeer/style: Hefeweizen\n"
        + "".join(f"review/{aspect}: {rating}\n" for aspect, rating in pairs)
        + f"review/time: 1234817823\nreview/profileName: stcules\nreview/text: {text}\n\n"
    ).encode()


BEERS = (
    beer("Sausa Weizen", "2.5 2 3.5 4 4.5", "A lot of foam.\tBut a lot: 100%\t")
    + beer("No rating", "0 2 3 4 5", "Not rated")
    + beer("Over: lines", "1 1.5 3 5 3", "First\nsecond")
    + beer("Köstritzer", "3 3 3 3 3", "käse").decode().encode("latin-1")
    + beer("No text", "3 3 3 3 3", "")
)
TXT = "beeradvocate.txt"
LITERALS = [
    {
        "beer/name": "Sausa 'Weizen'",
        "review/timeStruct": {"wday": 0},
        "review/text": "A lot\tof foam ",
        **{f"review/{a}": r for a, r in zip(beeradvocate.REVIEWS.aspects, ratings, strict=True)},
    }
    for ratings in ((2.5, "4", 3.0, 3.5, 5), (0, 1, 1, 1, 1))
]


class TestBeerAdvocate(DistributionTestCase):
    name = "beeradvocate"
    files = {TXT: BEERS}
    options = {**ANY, "train": 1, "test": 1, "validation": 1}
    counts = "found: train 1, test 1; allowed: train 10,000, test 2,000"
    warts = (
        Wart({TXT: BEERS + beer("x", "4.2 1 1 1 1", "y")}, "at line 72; found: 4.2; allowed: 1, 1.5"),
        Wart({TXT: None}, "no beeradvocate.txt.gz or beeradvocate.txt"),
        Wart({f"{TXT}.gz": gzip.compress(BEERS)[:-30]}, f"{TXT}.gz: cannot be read; is it whole?"),
        Wart({TXT: None, "beeradvocate.json": "{}\n__import__('os').system('true')"}, "no review at line 2"),
        Wart({}, "found: reviews 5; allowed: reviews 1,586,614", {**PUBLISHED, "check_counts": True}),
    )

    @pytest.mark.parametrize("file", ["beeradvocate.txt", "Beeradvocate.txt.gz"])
    @pytest.mark.parametrize(("rounded", "first"), [("down", [1, 1, 2, 3, 3]), ("up", [2, 1, 3, 3, 3])])
    def test_reviews_have_ratings_in_halves_and_sentiments(self, read, file, rounded, first):
        content = gzip.compress(BEERS) if file.endswith(".gz") else BEERS
        data = read({TXT: None, file: content}, half_stars=rounded)
        assert {key: row[1:] for key, row in rows_of(data).items()} == {
            "line-1": ("A lot of foam.\tBut a lot: 100%", first, [2.5, 2, 3.5, 4, 4.5]),
            "line-29": ("First\nsecond", [1, 1, 2, 3, 2], [1, 1.5, 3, 5, 3]),
            "line-44": ("käse", [2] * 5, [3] * 5),
        }
        assert data.info.rows == {"train": 1, "validation": 1, "test": 1}

    def test_the_release_in_literals(self, read):
        content = gzip.compress("\n".join(map(repr, LITERALS)).encode())
        files = {TXT: None, "beeradvocate.json.gz": content}
        rows = {"line-1": ("train", "A lot\tof foam", [1, 3, 2, 2, 3], [2.5, 4, 3, 3.5, 5])}
        assert rows_of(read(files, **ALL)) == rows
