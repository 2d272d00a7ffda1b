"""Tests `mlcl export --push` and `answer.push_to_hub` with a stand-in for the Hugging Face Hub."""

import tempfile

import pytest
from builders import tiny_job
from commands import mlcl
from hub_server import READER, TOKEN, Repository, hub_server
from huggingface_hub import constants
from sweep_reports import report as sweep_report
from sweep_reports import trained

from mlcl import load_model
from mlcl.api.answer import Answer
from mlcl.errors import UserError
from mlcl.service.run_job import run_job

REPO = "ada/tiny-model"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def report(home, tiny):
    return run_job(tiny_job(tiny, epochs=1), home=home, listener=lambda _: None)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with hub_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # large files are uploaded by git LFS
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


def export(home, report, *words):
    return mlcl("export", report.mlflow_run_id, "--home", home, *words)


def refusal(home, report, *words):
    answer = export(home, report, *words)
    assert (answer.status, answer.out) == (2, "")
    assert len(answer.err.splitlines()) == 1
    return answer.err


def test_a_pushed_folder_is_the_exported_one(home, report, hub, tmp_path):
    answer = export(home, report, "--push", REPO, "--to", tmp_path / "kept")
    assert answer.status == 0, answer.err
    assert f"pushed to {hub.address}/{REPO}" in answer.out
    repository = hub.repositories[REPO]
    assert repository.private
    exported_files = {file.name: file.read_bytes() for file in (tmp_path / "kept").iterdir()}
    assert repository.files == exported_files
    (tmp_path / "down").mkdir()
    for name, content in repository.files.items():
        (tmp_path / "down" / name).write_bytes(content)
    assert load_model(tmp_path / "down").predict(["ball noise1"]).labels


def test_pushing_twice_makes_one_commit_and_keeps_no_stale_file(home, report, hub, tmp_path):
    for _ in range(2):
        answer = export(home, report, "--push", REPO, "--json")
        assert answer.status == 0, answer.err
        assert (answer.json["folder"], answer.json["pushed"]) == (None, f"{hub.address}/{REPO}")
    repository = hub.repositories[REPO]
    assert len(repository.commits) == 1
    assert 'mlcl.load_model("tiny-model")' in repository.files["README.md"].decode()
    repository.files |= {"model.onnx": b"old", "features/tfidf/terms": b"old", "picture.png": b"mine"}
    export(home, report, "--push", REPO)
    assert {"model.onnx", "features/tfidf/terms"} & repository.files.keys() == set()
    assert repository.files["picture.png"] == b"mine"
    assert not (home / "models").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("mlcl-")] == []


def test_a_public_repository_is_asked_for(home, report, hub):
    hub.repositories["ada/open"] = Repository(private=False)
    line = refusal(home, report, "--push", "ada/open")
    assert "key --push: is public, and a model has ids and embeddings of its training rows" in line
    assert hub.repositories["ada/open"].files == {}
    assert export(home, report, "--push", "ada/open", "--public").status == 0
    assert export(home, report, "--push", "ada/new", "--public").status == 0
    assert not hub.repositories["ada/new"].private
    assert "key --public: goes with --push" in refusal(home, report, "--public")


@pytest.mark.parametrize("repo", ["a/b/c", "", "a//b", "..", "has space", "x" * 100])
def test_names_that_no_repository_has(repo, home, report, hub):
    assert "key --push: not the name of a repository" in refusal(home, report, "--push", repo)
    assert hub.repositories == {}


def test_no_token_no_right_and_no_network_are_one_line(home, report, hub, monkeypatch):
    line = refusal(home, report, "--push", "eve/tiny")
    assert "the token has no right to write there; found: eve/tiny (You have no rights in eve)" in line
    monkeypatch.setenv("HF_TOKEN", READER)
    assert "no right to write there" in refusal(home, report, "--push", REPO)
    monkeypatch.setenv("HF_TOKEN", "hf_stale")
    assert "the hub does not know this token" in refusal(home, report, "--push", REPO)
    monkeypatch.delenv("HF_TOKEN")
    assert "no token for the hub; found: ada/tiny-model; allowed: HF_TOKEN" in refusal(
        home, report, "--push", REPO
    )
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "cannot be sent to the hub; found: ada/tiny-model (" in refusal(home, report, "--push", REPO)
    assert hub.repositories == {}


def test_an_answer_pushes_its_best_model(home, report, hub):
    sweep = sweep_report(trials=(trained(0, score=0.5, run_id=report.mlflow_run_id),))
    assert Answer(sweep, home).push_to_hub(REPO) == f"{hub.address}/{REPO}"
    assert "weights.safetensors" in hub.repositories[REPO].files
    with pytest.raises(UserError, match="no such format; found: tar"):
        Answer(sweep, home).push_to_hub(REPO, also=["tar"])
