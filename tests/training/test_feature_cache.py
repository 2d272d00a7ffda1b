"""Tests that frozen features equal their equations and are computed once for all users."""

import json
import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from mlcl.data import Dataset, decode_all, normalise
from mlcl.data.validation_rows import redraw_validation
from mlcl.errors import UserError
from mlcl.models.encoders.features import (
    CharactersInput,
    ColumnInput,
    ImageInput,
    TfidfInput,
    TransformerInput,
    WordsInput,
)
from mlcl.testing.datasets import small_dataset
from mlcl.training.features import cache as feature_cache
from mlcl.training.features import words
from mlcl.training.features.cache import EXTRACTORS, FeatureCache
from mlcl.training.features.extractor import precision

CPU = torch.device("cpu")
with_words = pytest.mark.skipif(find_spec("wordllama") is None, reason="needs the package wordllama")


@pytest.fixture
def data(tmp_path):
    return lambda modality: Dataset.open(small_dataset(tmp_path / modality, modality))


@pytest.fixture
def bert(tmp_path):
    from tiny_models import tiny_model

    return TransformerInput(model=str(tiny_model(tmp_path / "bert", "bert")), max_length=6)


def dense(rows):
    return rows.toarray() if hasattr(rows, "toarray") else rows


def slow_tfidf(train, texts, longest=2, *, of_characters=False):
    """Returns TF-IDF rows computed term by term from the equation, in float64."""

    def grams(text):
        if of_characters:
            padded_words = [f" {word} " for word in text.lower().split()]
            spans = [
                (w, i, n) for w in padded_words for n in range(2, longest + 1) for i in range(len(w) - n + 1)
            ]
            return Counter(word[i : i + n] for word, i, n in spans)
        words = [word for word in text.lower().split() if len(word) > 1]
        return Counter(
            " ".join(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1)
        )

    documents = Counter(term for text in train for term in grams(text))
    terms = sorted(documents, key=lambda term: (-documents[term], term))
    idf = {term: math.log((1 + len(train)) / (1 + documents[term])) + 1 for term in terms}
    rows = np.zeros((len(texts), len(terms)))
    for row, text in zip(rows, texts, strict=True):
        for term, count in grams(text).items():
            if term in idf:
                row[terms.index(term)] = (1 + math.log(count)) * idf[term]
        row /= np.linalg.norm(row) or 1
    return rows


def test_tfidf_is_its_equation_with_the_weights_of_the_training_rows(data, tmp_path):
    data = data("text")
    train, test = data.split("train").take(torch.arange(9)), data.split("test")
    rows = FeatureCache(tmp_path / "cache", train).rows("tfidf", TfidfInput(), test)
    assert rows.dtype == np.float32
    assert rows.has_sorted_indices
    np.testing.assert_allclose(rows.toarray(), slow_tfidf(train.texts(), test.texts()), rtol=1e-5, atol=1e-7)


def test_tfidf_of_characters_stays_within_words(data, tmp_path):
    data = data("text")
    train, test = data.split("train").take(torch.arange(9)), data.split("test")
    rows = FeatureCache(tmp_path / "cache", train).rows("characters", CharactersInput(ngrams=3), test)
    expected = slow_tfidf(train.texts(), test.texts(), 3, of_characters=True)
    np.testing.assert_allclose(rows.toarray(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "kind", ["tfidf", "characters", pytest.param("words", marks=with_words), "transformer", "image", "column"]
)
def test_a_saved_extractor_gives_the_same_bits(kind, data, tmp_path, request):
    sections = {"tfidf": TfidfInput(), "image": ImageInput(image_size=4), "column": ColumnInput()}
    sections |= {"words": WordsInput(), "characters": CharactersInput()}
    section = sections.get(kind) or request.getfixturevalue("bert")
    plugin = EXTRACTORS[kind]
    split = data(section.modality).split("train")
    cache = FeatureCache(tmp_path / "cache", split)
    extractor = cache.extractor(kind, section)
    (tmp_path / "saved").mkdir()
    extractor.save(tmp_path / "saved")
    loaded_extractor = plugin.load(section, tmp_path / "saved", CPU)
    contents = cache.contents(section, split)
    expected, actual = (dense(fitted(contents)) for fitted in (extractor, loaded_extractor))
    np.testing.assert_array_equal(expected, actual)
    assert expected.shape == (len(split), extractor.columns)
    cached_rows = cache.rows(kind, section, split)
    np.testing.assert_array_equal(dense(cached_rows), expected)


def test_a_mean_of_token_states_does_not_depend_on_other_rows(bert):
    extract = EXTRACTORS["transformer"].fit(bert, None, CPU, "bf16")
    texts = ["ball", "vote law run", "noise1 noise2 noise3 noise4"]
    extract_exactly = type(extract)(extract.network.double(), extract.tokenizer, 6, CPU, "float32")
    states = extract_exactly(texts)
    for row, text in enumerate(texts):
        np.testing.assert_allclose(extract_exactly([text])[0], states[row], rtol=1e-6, atol=1e-7)
    unit_states = EXTRACTORS["transformer"].fit(bert.model_copy(update={"unit": True}), None, CPU, "float32")(
        texts
    )
    expected = states / np.linalg.norm(states, axis=1, keepdims=True)
    np.testing.assert_allclose(unit_states, expected, rtol=1e-4, atol=1e-5)
    assert bert.model_dump()["unit"] is False


@with_words
def test_words_are_means_of_vectors_of_tokens():
    extract = EXTRACTORS["words"].fit(WordsInput(max_length=3), None, CPU, "float32")
    texts = ["ball", "vote law run of a long text", ""]
    rows = extract(texts)
    assert rows.shape == (3, 256)
    for row, text in zip(rows, texts, strict=True):
        ids = extract.tokenizer.encode(text, add_special_tokens=False).ids[:3] or [0]
        np.testing.assert_allclose(row, extract.vector_VD[ids].double().mean(0), rtol=1e-5, atol=1e-6)


@with_words
def test_words_of_like_meaning_are_near():
    extract = EXTRACTORS["words"].fit(WordsInput(), None, CPU, "float32")
    rows = torch.from_numpy(extract(["fractured femur", "broken thigh bone", "stock market crash"]))
    similarity_near, similarity_far, _ = torch.nn.functional.cosine_similarity(
        rows[[0, 0, 1]], rows[[1, 2, 2]]
    ).tolist()
    assert similarity_near > similarity_far + 0.2


def test_words_without_the_package_name_its_extra(data, tmp_path, monkeypatch):
    monkeypatch.setattr(words, "PACKAGE", "no_such_package")
    cache = FeatureCache(tmp_path / "cache", data("text").split("train"))
    with pytest.raises(UserError, match=r"needs the files of the package no_such_package.*mlcl\[words\]"):
        cache.extractor("words", WordsInput())


def test_pixels_are_normalised_and_flat(data, tmp_path):
    split = data("image").split("test")
    rows = FeatureCache(tmp_path / "cache", split).rows("image", ImageInput(image_size=4), split)
    pixels = torch.from_numpy(np.array(decode_all(split, 4, tmp_path / "cache").pixels))
    np.testing.assert_array_equal(rows, normalise(pixels).flatten(1))


def test_vectors_are_as_they_stand_in_the_data(data, tmp_path):
    train, split = (data("vectors").split(name) for name in ("train", "test"))
    cache = FeatureCache(tmp_path / "cache", train)
    np.testing.assert_array_equal(cache.rows("column", ColumnInput(), split), split.vectors())
    assert not (tmp_path / "cache").exists()


def test_rows_are_computed_once_also_for_many_at_once(data, tmp_path, bert, monkeypatch):
    train = data("text").split("train")
    calls = []
    write = feature_cache._write_rows
    monkeypatch.setattr(feature_cache, "_write_rows", lambda *arguments: calls.append(1) or write(*arguments))
    with ThreadPoolExecutor(4) as pool:
        futures = [
            pool.submit(FeatureCache(tmp_path / "cache", train).rows, "transformer", bert, train)
            for _ in range(4)
        ]
    first, *others = [future.result() for future in futures]
    assert len(calls) == 1
    assert isinstance(first, np.memmap)
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("kind", ["tfidf", "transformer", "image"])
def test_features_of_redrawn_rows_are_those_of_the_stored_splits_unless_they_are_fitted(
    kind, data, tmp_path, bert, monkeypatch
):
    section = {"tfidf": TfidfInput(), "transformer": bert, "image": ImageInput(image_size=4)}[kind]
    row_counts, contents = [], FeatureCache.contents

    def counted(self, section, split):
        row_counts.append(len(split))
        return contents(self, section, split)

    monkeypatch.setattr(FeatureCache, "contents", counted)
    data = data(section.modality)
    for seed in (1, 2):
        redrawn = redraw_validation(data, seed)
        train = redrawn.split("train")
        cache = FeatureCache(tmp_path / "cache", train)
        expected = EXTRACTORS[kind].fit(
            section, contents(cache, section, train), CPU, precision(CPU, cache.cache)
        )
        splits = (train, redrawn.split("validation"), redrawn.split("test"), train.take(torch.tensor([7, 2])))
        for split in splits:
            actual = dense(cache.rows(kind, section, split))
            np.testing.assert_allclose(actual, dense(expected(contents(cache, section, split))), atol=1e-6)
    rows = [len(data.split(name)) for name in ("train", "validation", "test")]
    fitted = [rows[0], *rows, 2]  # TF-IDF reads train to be fitted, then all rows
    assert sorted(row_counts) == sorted(fitted * 2 if kind == "tfidf" else [*rows, 2, 2])


def test_what_decides_the_rows_decides_the_entry(data, tmp_path):
    data = data("text")
    train, test = data.split("train"), data.split("test")

    def entries():
        return {path.name for path in (tmp_path / "cache" / "features").iterdir() if path.is_dir()}

    def ask(section, rows, split):
        old_entries = entries() if (tmp_path / "cache").exists() else set()
        FeatureCache(tmp_path / "cache", rows).rows("tfidf", section, split)
        return len(entries() - old_entries)

    assert ask(TfidfInput(), train, test) == 2  # one entry for the extractor, one for the rows
    assert ask(TfidfInput(), train, test) == 0
    assert ask(TfidfInput(), train, train) == 1
    assert ask(TfidfInput(ngrams=1), train, test) == 2
    assert ask(TfidfInput(), train.take(torch.arange(20)), test) == 2
    assert ask(TfidfInput(), train, test.take(torch.arange(5))) == 1


def test_a_failed_extraction_leaves_nothing(data, tmp_path, monkeypatch):
    train = data("text").split("train")
    cache = FeatureCache(tmp_path / "cache", train)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(feature_cache, "_write_rows", fail)
    with pytest.raises(UserError, match="cannot be written"):
        cache.rows("tfidf", TfidfInput(), train)
    monkeypatch.undo()
    folders = [path for path in (tmp_path / "cache" / "features").iterdir() if path.is_dir()]
    assert [path.name.startswith(".") for path in folders] == [False]
    assert json.loads((folders[0] / "about.json").read_text())["extractor"] == "tfidf"


def test_texts_without_a_word_are_refused(tmp_path, data):
    with pytest.raises(UserError, match="no word in the training texts"):
        EXTRACTORS["tfidf"].fit(TfidfInput(), ["a", "b"], CPU, "float32")
