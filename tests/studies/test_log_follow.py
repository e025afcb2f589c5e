"""From the journal to a logger: every event once, afterwards and live, through torn lines and resumed runs."""

from __future__ import annotations

import gzip
import itertools
import os
import subprocess
import sys

import pytest

from iblurry.errors import DataError, FolderError, InputError
from iblurry.experiment.folder import RunFolder
from iblurry.experiment.journal import Logged, Query, Start, Stopped, encode
from iblurry.studies.loggers.follow import JournalFeed, JournalUpdate, RunFollower, record_events
from iblurry.studies.loggers.logger import describe_run
from tests.studies.told import (
    ENVIRONMENT,
    FINAL,
    LINES,
    PARAMETERS,
    SCALARS,
    SUMMARY,
    TEXTS,
    Recorder,
    begin,
    finish,
    write,
)

COUNT = len(SCALARS) + len(TEXTS)


def numbers(events):
    return [(step, values) for step, values in events if "new_class" not in values]


def words(events):
    return [(step, "new_class", values["new_class"]) for step, values in events if "new_class" in values]


@pytest.fixture
def folder(tmp_path):
    return begin(tmp_path / "mine-pets-1", LINES)


def test_a_finished_folder(folder):
    finish(folder)
    reader = RunFollower(folder)
    news = reader.poll()
    assert numbers(news.events) == [*SCALARS, FINAL]
    assert words(news.events) == TEXTS
    assert (news.restarted, news.summary) == (True, SUMMARY)
    assert reader.poll() == JournalUpdate([], summary=SUMMARY)


def test_what_is_known_of_the_run(folder):
    facts = describe_run(RunFolder(folder))
    assert (facts.name, facts.folder) == ("mine-pets-1", folder)
    assert (facts.parameters, facts.environment) == (PARAMETERS, ENVIRONMENT)


def test_the_name_of_the_working_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert describe_run(RunFolder(".")).name == "mine-pets-1"


def test_a_run_under_way_a_few_bytes_at_a_time(folder):
    whole, reader, told, firsts = b"".join(LINES), RunFollower(folder), [], 0
    for size in [*range(0, len(whole), 13), len(whole)]:
        write(folder, [whole[:size]])
        news = reader.poll()
        told += news.events
        firsts += news.restarted
        assert news.summary is None
        lines = whole[:size].count(b"\n")
        assert len(numbers(told)) == max(0, lines - 1)  # a torn line is not read, a whole one at once
    finish(folder)
    assert numbers(told + reader.poll().events) == [*SCALARS, FINAL]
    assert words(told) == TEXTS
    assert firsts == 1
    assert reader.poll().events == []


@pytest.mark.parametrize("seen, kept", list(itertools.combinations(range(1, len(LINES) + 1), 2))[::-1])
def test_a_run_that_goes_on_cuts_its_journal_back_and_no_step_is_told_twice(folder, seen, kept):
    kept, seen = seen, kept  # a checkpoint lies before what was written last
    reader = RunFollower(folder)
    write(folder, [*LINES[:seen], b'{"kind":"que'])  # killed while it wrote
    told = reader.poll().events
    for lines in range(kept, len(LINES) + 1):
        write(folder, LINES[:lines])
        news = reader.poll()
        assert not news.restarted
        told += news.events
    assert numbers(told) == SCALARS
    assert words(told) == TEXTS


def test_a_resume_that_nobody_saw(folder):
    reader = RunFollower(folder)
    write(folder, LINES[:6])
    told = reader.poll().events
    write(folder, LINES)  # cut back to line 4 and grown beyond line 6 between two looks
    news = reader.poll()
    assert not news.restarted
    assert numbers(told + news.events) == SCALARS


@pytest.mark.parametrize("first", [4, len(LINES)])
def test_a_journal_with_other_lines_is_told_anew(folder, first):
    reader = RunFollower(folder)
    write(folder, LINES[:first])
    reader.poll()
    other = [*LINES[:3], encode(Query(10, 0, (4, 1), (4, 4), 0.1, 10)), *LINES[4:]]
    write(folder, other)
    news = reader.poll()
    assert news.restarted
    assert [values["accuracy"] for _, values in numbers(news.events) if "accuracy" in values] == [
        0.625,
        0.75,
        0.5,
        0.25,
    ]
    assert words(news.events) == TEXTS  # classes are counted from the start again
    finish(folder)
    assert numbers(reader.poll().events) == [FINAL]


def test_a_finished_run_with_a_shorter_journal_is_told_anew(folder):
    reader = RunFollower(folder)
    reader.poll()
    write(folder, LINES[:5])
    assert reader.poll() == JournalUpdate([])  # a run that goes on
    finish(folder)
    news = reader.poll()
    assert news.restarted
    assert numbers(news.events) == [*SCALARS[:4], FINAL]


def test_what_callbacks_logged():
    records = [Logged(25, "mine", 0.5), Stopped(30, "far enough")]
    told = [(event.step, event.values) for record in records for event in record_events(record, [])]
    assert told == [(25, {"own/mine": 0.5}), (30, {"stopped": "far enough"})]


def test_a_run_that_has_not_begun(tmp_path):
    folder = begin(tmp_path / "mine-pets-1")
    reader = RunFollower(folder)
    assert reader.poll() == JournalUpdate([])
    write(folder, LINES[:1])
    assert reader.poll() == JournalUpdate([], restarted=True)
    write(folder, LINES[:2])
    assert numbers(reader.poll().events) == SCALARS[:1]
    (folder / "journal.jsonl").unlink()
    assert reader.poll() == JournalUpdate([])


def test_a_packed_journal(folder):
    (folder / "journal.jsonl").unlink()
    (folder / "journal.jsonl.gz").write_bytes(gzip.compress(b"".join(LINES)))
    finish(folder)
    assert numbers(RunFollower(folder).poll().events) == [*SCALARS, FINAL]
    (folder / "journal.jsonl.gz").write_bytes(gzip.compress(b"".join(LINES))[:-9])
    with pytest.raises(DataError, match=r"journal\.jsonl\.gz"):
        RunFollower(folder).poll()


@pytest.mark.parametrize(
    "lines, number, why",
    [
        ([*LINES[:3], b"{}\n"], 4, "no kind None"),
        ([*LINES[:3], b"noise\n", *LINES[3:]], 4, "Expecting value"),
        (LINES[1:], 1, "one start, on its first line"),
        ([*LINES[:2], encode(Start("0", 40, (40,), 10))], 3, "one start, on its first line"),
    ],
)
def test_a_damaged_journal(folder, lines, number, why):
    write(folder, lines)
    with pytest.raises(DataError, match=rf"journal\.jsonl, line {number} .*{why}"):
        RunFollower(folder).poll()


def test_a_damaged_experiment(folder):
    path = folder / "experiment.json"
    path.write_text('{"format": 2, "experiment": {}}')
    with pytest.raises(DataError, match=r"experiment\.json"):
        describe_run(RunFolder(folder))
    path.unlink()
    with pytest.raises(FolderError, match="mine-pets-1"):
        describe_run(RunFolder(folder))


def test_nothing_is_written_there(folder):
    finish(folder)
    for path in (*folder.iterdir(), folder):
        os.utime(path, (1, 1))
    reader = RunFollower(folder)
    describe_run(reader.folder)
    reader.poll()
    assert {path.stat().st_mtime for path in (*folder.iterdir(), folder)} == {1.0}


def test_it_needs_no_torch(folder):
    finish(folder)
    code = (
        "import sys\n"
        "from iblurry.studies.loggers.follow import JournalFeed, RunFollower\n"
        "from iblurry.studies.loggers.logger import describe_run\n"
        "reader = RunFollower(sys.argv[1])\n"
        "print(len(reader.poll().events), describe_run(reader.folder).name)\n"
        "print([name for name in ('torch', 'tensorboard', 'wandb', 'mlflow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{COUNT + 1} mine-pets-1", "[]"]


def test_a_finished_run_is_logged(folder):
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
    assert (feed.location, feed.events) == ("kept/mine-pets-1", len(SCALARS) + len(TEXTS) + 1)


def test_a_run_under_way_that_is_left(tmp_path):
    made = []
    folder = begin(tmp_path / "mine-pets-1")
    feed = JournalFeed(folder, lambda: made.append(Recorder()) or made[-1])
    assert not feed.update()
    feed.close()
    assert (made, feed.location) == ([], None)  # nothing is started for a run that has not begun
    for lines in range(1, len(LINES)):
        write(folder, LINES[:lines])
        assert not feed.update()
        assert made[0].flushed == lines - 1
    feed.close()
    assert (len(made), made[0].started, made[0].ended) == (1, 1, [None])
    assert made[0].scalar == SCALARS[:-1]


def test_a_journal_written_otherwise_is_logged_anew(folder):
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
    with pytest.raises(InputError, match=r"mine-pets-1: .*no such server"):  # noqa: PT012
        feed.update()
        feed.close()
    if verb == "start":
        feed.close()  # nothing was begun that could be ended
