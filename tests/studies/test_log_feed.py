"""From the journal to a writer: started when there is something, told everything once, ended once."""

from __future__ import annotations

import pytest

from iblurry.errors import InputError, UnknownNameError
from iblurry.experiment.journal import Query, encode
from iblurry.studies.loggers.follow import JournalFeed
from iblurry.studies.loggers.logger import LOGGERS, make_logger_factory, require_library
from tests.studies.told import FINAL, LINES, PARAMETERS, SCALARS, SUMMARY, TEXTS, Recorder, begin, finish, write


@pytest.fixture
def folder(tmp_path):
    return begin(tmp_path / "mine-pets-1", LINES)


def test_a_finished_run(folder):
    finish(folder)
    writer = Recorder()
    feed = JournalFeed(folder, lambda: writer)
    assert feed.update()
    feed.close()
    assert feed.update()
    feed.close()
    assert writer.run.parameters == PARAMETERS
    assert writer.scalar == [*SCALARS, FINAL]
    assert writer.texts == TEXTS
    assert (writer.started, writer.flushed, writer.ended) == (1, len(SCALARS) + 1, [SUMMARY])
    assert (feed.place, feed.events) == ("kept/mine-pets-1", len(SCALARS) + len(TEXTS) + 1)


def test_a_run_under_way_that_is_left(tmp_path):
    made = []
    folder = begin(tmp_path / "mine-pets-1")
    feed = JournalFeed(folder, lambda: made.append(Recorder()) or made[-1])
    assert not feed.update()
    feed.close()
    assert (made, feed.place) == ([], None)  # nothing is started for a run that has not begun
    for lines in range(1, len(LINES)):
        write(folder, LINES[:lines])
        assert not feed.update()
        assert made[0].flushed == lines - 1
    feed.close()
    assert (len(made), made[0].started, made[0].ended) == (1, 1, [None])
    assert made[0].scalar == SCALARS[:-1]


def test_a_journal_written_otherwise_starts_anew(folder):
    writer = Recorder()
    feed = JournalFeed(folder, lambda: writer)
    feed.update()
    write(folder, [*LINES[:3], encode(Query(10, 0, (4, 1), (4, 4), 0.1, 10))])
    feed.update()
    assert writer.started == 2
    assert [step for step, _ in writer.scalar] == [1, 3, 10]
    assert feed.events == 5


@pytest.mark.parametrize("verb", ["start", "log_scalars", "finish"])
def test_what_the_library_refuses_is_one_sentence(folder, verb, monkeypatch):
    def refuse(*_):
        raise KeyError("no such server.")

    monkeypatch.setattr(Recorder, verb, refuse)
    feed = JournalFeed(folder, Recorder)
    with pytest.raises(InputError, match=r"Recorder refused .*/mine-pets-1: .*no such server.*; the same command"):  # noqa: PT012
        feed.update()
        feed.close()
    if verb == "start":
        feed.close()  # nothing was begun that could be ended


@pytest.mark.parametrize("name, module", [*zip(LOGGERS, LOGGERS, strict=True), ("mlflow", "sqlalchemy")])
def test_a_library_that_is_not_installed(name, module, monkeypatch, tmp_path):
    """A folder of its name, such as a logger leaves in the working folder, is no library."""
    monkeypatch.setattr("iblurry.studies.loggers.logger.find_spec", lambda asked: None if asked == module else SPEC)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError, match=rf"{LOGGERS[name]} needs {module}, .*pip install 'iblurry\[{name}\]'\."):
        make_logger_factory(name)()


class SPEC:
    origin = "somewhere/__init__.py"


def test_a_folder_of_its_name_is_no_library(monkeypatch, tmp_path):
    (tmp_path / "nolibrary").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="needs nolibrary, which is not installed"):
        require_library("nolibrary", "wandb")
    require_library("numpy", "wandb")


def test_an_unknown_logger():
    with pytest.raises(UnknownNameError, match="Did you mean 'wandb'"):
        make_logger_factory("wandbb")


def test_extras_are_declared():
    from pathlib import Path

    text = (Path(__file__).parent.parent.parent / "pyproject.toml").read_text()
    for name in LOGGERS:
        assert f'\n{name} = ["{name}>=' in text
