"""What a training has scored, whatever kills it."""

import pytest

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
