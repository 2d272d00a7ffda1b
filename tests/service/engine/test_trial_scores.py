"""What a training has scored, whatever kills it."""

import pytest

from mlcl.errors import UserError
from mlcl.service.engine.trial_scores import SCORES, Scores


def test_what_was_kept_is_there_again(tmp_path):
    scores = Scores(tmp_path / "trial")
    assert scores.add(1, 0.5)
    assert scores.add(2, float("inf"))
    scores.finish([0.7, 0.2])
    again = Scores(tmp_path / "trial")
    assert again.rungs == [(1, 0.5), (2, float("inf"))]
    assert again.values == [0.7, 0.2]


def test_an_epoch_has_one_score(tmp_path):
    scores = Scores(tmp_path)
    assert scores.add(1, 0.5)
    assert not scores.add(1, 0.6)
    again = Scores(tmp_path)
    assert not again.add(1, 0.7)
    assert again.rungs == [(1, 0.5)]
    assert again.values is None


@pytest.mark.parametrize("kept", range(1, 20))
def test_a_torn_line_never_happened(tmp_path, kept):
    Scores(tmp_path).add(1, 0.5)
    whole = (tmp_path / SCORES).read_bytes()
    with (tmp_path / SCORES).open("ab") as file:
        file.write(b'{"values": [0.25, 0.5]}\n'[:kept])
    again = Scores(tmp_path)
    assert (again.rungs, again.values) == ([(1, 0.5)], None)
    assert (tmp_path / SCORES).read_bytes() == whole
    again.finish([0.25, 0.5])
    assert Scores(tmp_path).values == [0.25, 0.5]


def test_a_flipped_bit_is_found_and_the_scores_written_anew(tmp_path):
    scores = Scores(tmp_path)
    scores.add(1, 0.5)
    scores.finish([0.7])
    whole = (tmp_path / SCORES).read_bytes()
    for place in range(8 * (len(whole) - 1)):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        (tmp_path / SCORES).write_bytes(flipped)
        with pytest.raises(UserError, match=r"scores.jsonl, key line \d: damaged"):
            Scores(tmp_path)
    again = Scores.anew(tmp_path, [(1, 0.5), (2, 0.6)])
    assert (again.rungs, again.values) == (Scores(tmp_path).rungs, None) == ([(1, 0.5), (2, 0.6)], None)


def test_a_file_without_checksums_is_read(tmp_path):
    (tmp_path / SCORES).write_text('{"epoch": 1, "score": 0.5}\n')
    scores = Scores(tmp_path)
    scores.finish([0.7])
    again = Scores(tmp_path)
    assert (again.rungs, again.values) == ([(1, 0.5)], [0.7])
