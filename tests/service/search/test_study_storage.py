"""Where a study is kept."""

import optuna
import pytest
from databases import PASSWORD, postgres, postgres_folder

from mlcl.errors import UserError
from mlcl.service.search.study_storage import open_storage
from mlcl.tracking.uri import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("some/folder/study.journal", "some/folder/study.journal"),
        ("sqlite:///study.db", "sqlite:///study.db"),
        ("postgresql+psycopg://ann:pw@host:5432/db", "postgresql+psycopg://ann:***@host:5432/db"),
        ("postgresql+psycopg://ann@host/db", "postgresql+psycopg://ann@host/db"),
        ("postgresql+psycopg://ann:p/w:x?y@host/db", "postgresql+psycopg://ann:***@host/db"),
        ("postgresql+psycopg://ann:p@w@host/db", "postgresql+psycopg://ann:***@host/db"),
        ("postgresql://host/db?user=ann&password=pw&x=1", "postgresql://host/db?user=ann&password=***&x=1"),
        ("postgresql://host/db?sslpassword=pw", "postgresql://host/db?sslpassword=***"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    assert without_password(url) == shown


@pytest.mark.parametrize("form", ["{}/study.journal", "sqlite:///{}/study.db"])
def test_a_study_is_there_when_its_storage_is_opened_again(tmp_path, form):
    where = form.format(tmp_path)
    study = optuna.create_study(study_name="sweep", storage=open_storage(where))
    study.tell(study.ask(), 0.5)
    again = optuna.load_study(study_name="sweep", storage=open_storage(where))
    assert [trial.value for trial in again.trials] == [0.5]


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ("mysql://ann:hunter2@host/db", r"--study.*unknown kind.*mysql://\.\.\..*postgresql\+psycopg://"),
        ("postgresql+psycopg://ann:hunt@er2@host/db", r"%40.*ann:\*\*\*@host"),
        ("postgresql+psycopg://ann:hunter2/db", r"not the URL"),
        ("sqlite://", r"in memory"),
        ("sqlite:///:memory:", r"in memory"),
        ("sqlite:///{}/missing/study.db", r"cannot be used.*missing/study\.db \(unable to open"),
        ("postgresql+psycopg://ann:hunter2@127.0.0.1:1/db", r"cannot be used.*ann:\*\*\*@127\.0\.0\.1:1/db"),
        ("postgresql://127.0.0.1:1/db?password=hunter2", r"cannot be used.*password=\*\*\*"),
        ("{}/missing/study.journal", r"--study.*not a study's journal.*No such file"),
        ("{}", r"not a study's journal.*directory"),
    ],
)
def test_what_cannot_be_used_is_told_without_a_password(tmp_path, where, match):
    with pytest.raises(UserError, match=match) as error:
        open_storage(where.format(tmp_path))
    assert error.value.key == "--study"
    assert "er2" not in str(error.value)


@pytest.mark.parametrize("text", ["a: 1\nb: 2", "{}", '{"op_code_": 3}\n'])
def test_another_kind_of_file_is_refused_and_left_as_it_is(tmp_path, text):
    path = tmp_path / "notes"
    path.write_text(text)
    with pytest.raises(UserError, match="another kind of file"):
        open_storage(path)
    assert path.read_text() == text


@pytest.mark.parametrize("left", [1, 20, None])
def test_a_line_that_a_kill_left_torn_is_cut_off(tmp_path, left):
    path = tmp_path / "study.journal"
    study = optuna.create_study(study_name="sweep", storage=open_storage(path))
    study.ask()
    whole = path.read_bytes()
    study.ask()
    last = path.read_bytes()[len(whole) : -1]
    path.write_bytes(whole + last[:left])
    again = optuna.load_study(study_name="sweep", storage=open_storage(path))
    assert len(again.trials) == 1
    assert again.ask().number == 1
    assert len(optuna.load_study(study_name="sweep", storage=open_storage(path)).trials) == 2


def test_a_journal_that_was_torn_at_its_first_line_is_new(tmp_path):
    path = tmp_path / "study.journal"
    path.write_text('{"op_c')
    optuna.create_study(study_name="sweep", storage=open_storage(path))
    assert optuna.get_all_study_names(open_storage(path)) == ["sweep"]


@pytest.mark.skipif(postgres_folder() is None, reason="PostgreSQL is not installed")
def test_a_study_in_postgresql():
    with postgres() as url:
        study = optuna.create_study(study_name="sweep", storage=open_storage(url))
        study.tell(study.ask(), 0.5)
        plain = url.replace("+psycopg", "")
        again = optuna.load_study(study_name="sweep", storage=open_storage(plain))
        assert [trial.value for trial in again.trials] == [0.5]
        with pytest.raises(UserError, match="password authentication failed") as error:
            open_storage(url.replace(PASSWORD, "hunter2"))
        assert "hunter2" not in str(error.value)
