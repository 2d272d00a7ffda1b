import numpy as np
import pytest
import torch

from mlcl.data import Dataset, encode, hugging_face_tokenizer, load_tokenizer, tokens, train_word_tokenizer
from mlcl.errors import UserError

TEXTS = ["The cat sat.", "the CAT, the dog", "", "a dog; a zebra"]


def test_words_are_kept_by_frequency_and_lower_cased():
    tokenizer = train_word_tokenizer(TEXTS, vocabulary=5)
    assert tokenizer.get_vocab_size() == 5
    assert [tokenizer.token_to_id(token) for token in ("[PAD]", "[UNK]", "the")] == [0, 1, 2]
    assert {"cat", "dog", "a"} >= set(tokenizer.get_vocab()) - {"[PAD]", "[UNK]", "the"}
    assert tokenizer.encode("THE gnu").ids == [2, 1]


def test_the_same_texts_give_the_same_vocabulary_which_survives_its_json():
    texts = [f"word{i} word{i % 50}" for i in range(500)]
    tokenizer = train_word_tokenizer(texts, 100)
    assert tokenizer.to_str() == train_word_tokenizer(texts, 100).to_str()
    restored_tokenizer = load_tokenizer(tokenizer.to_str())
    assert restored_tokenizer.to_str() == tokenizer.to_str()
    with pytest.raises(UserError, match="not a tokenizer"):
        load_tokenizer("{}")


def test_batches_are_padded_to_their_longest():
    tokenizer = train_word_tokenizer(TEXTS, vocabulary=20)
    rows = encode(tokenizer, TEXTS, max_length=5)
    batch = rows.batch(torch.tensor([2, 0, 0]))
    assert batch["input_ids"].dtype == torch.int64
    assert batch["attention_mask"].dtype == torch.bool
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (3, 4)
    assert batch["input_ids"][0].tolist() == [1, 0, 0, 0]
    assert batch["attention_mask"].sum(1).tolist() == [1, 4, 4]
    assert torch.equal(batch["input_ids"][1], batch["input_ids"][2])
    assert np.diff(encode(tokenizer, ["a dog " * 50, "a"], 7).offsets).tolist() == [7, 1]
    assert [rows.batch(torch.tensor([row]))["input_ids"].shape for row in (3, 1)] == [(1, 5)] * 2


def test_the_cache_is_used_for_the_same_tokenizer_rows_and_length_only(text_set, tmp_path, monkeypatch):
    split = Dataset.open(text_set).split("train")
    tokenizer = train_word_tokenizer(split.texts(), vocabulary=50)
    calls = []
    monkeypatch.setattr(tokens, "_encode", lambda *a, real=tokens._encode: calls.append(a) or real(*a))
    first_encoding = encode(tokenizer, split, 8, tmp_path / "cache")
    cached_encoding = encode(tokenizer, Dataset.open(text_set).split("train"), 8, tmp_path / "cache")
    assert len(calls) == 1
    assert isinstance(cached_encoding.tokens, np.memmap)
    assert np.array_equal(first_encoding.tokens, cached_encoding.tokens)
    other_encoding = encode(tokenizer, split.texts(), 8)
    assert np.array_equal(other_encoding.tokens, cached_encoding.tokens)
    assert np.array_equal(other_encoding.offsets, cached_encoding.offsets)

    count = len(calls)
    encode(tokenizer, split, 9, tmp_path / "cache")
    encode(tokenizer, split.take(torch.tensor([1, 2])), 8, tmp_path / "cache")
    encode(tokenizer, Dataset.open(text_set).split("validation"), 8, tmp_path / "cache")
    encode(train_word_tokenizer(split.texts(), vocabulary=9), split, 8, tmp_path / "cache")
    assert len(calls) == count + 4
    monkeypatch.setattr(type(split), "texts", lambda self: pytest.fail("texts were read"))
    assert len(encode(tokenizer, split, 8, tmp_path / "cache")) == len(split)


def test_a_hugging_face_tokenizer_keeps_its_special_tokens(tmp_path):
    transformers = pytest.importorskip("transformers")
    from tokenizers.processors import TemplateProcessing

    words = train_word_tokenizer(TEXTS, vocabulary=20)
    words.add_special_tokens(["<s>", "</s>", "<fill>"])
    ids = {token: words.token_to_id(token) for token in ("<s>", "</s>", "<fill>")}
    words.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=list(ids.items())[:2])
    fast_tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<fill>", unk_token="[UNK]"
    )
    fast_tokenizer.save_pretrained(tmp_path)

    tokenizer = hugging_face_tokenizer(str(tmp_path))
    batch = encode(tokenizer, TEXTS, max_length=4).batch(torch.tensor([2, 3]))
    start, end, fill = ids.values()
    assert batch["input_ids"][0].tolist() == [start, end, fill, fill]
    assert batch["input_ids"][1, 0] == start
    assert batch["input_ids"][1, -1] == end
    assert batch["attention_mask"].tolist() == [[True, True, False, False], [True] * 4]


def test_without_files_or_transformers_the_error_says_so(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    with pytest.raises(UserError, match="no tokenizer there"):
        hugging_face_tokenizer(str(tmp_path / "nothing"))
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'mlcl\[transformers\]'"):
        hugging_face_tokenizer("any")
