"""The page: what it says of synthetic runs, and that the committed one is what the command makes today."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from iblurry.components.edit import edit
from iblurry.errors import DataError
from iblurry.streams.stream import Published
from iblurry.studies.collect import read_collected, read_repeats, read_run
from iblurry.studies.paper import Configuration, compare_with_paper
from iblurry.studies.reproduction import Note, draw_blocks, figure_name, read_notes, reproduction_page
from tests.studies.written import usual, write_run

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    """Three seeds of CLIB and of ER, which is far off; a warned number; a method of one's own."""
    out = tmp_path_factory.mktemp("runs")
    experiments = [(usual("clib", seed), 71) for seed in (1, 2, 3)] + [(usual("er", seed), 40) for seed in (1, 2, 3)]
    experiments += [(usual("mir", memory=1000), 61), (edit(usual("er"), "name=mine"), 50)]
    folders = [write_run(out, experiment, level, seconds=100 + experiment.seed)[0] for experiment, level in experiments]
    return compare_with_paper([read_run(folder) for folder in folders])


def section(text, heading):
    return text.split(f"\n{heading}\n", 1)[1].split("\n##", 1)[0]


def test_a_row_has_paper_ours_difference_and_verdict(blocks):
    text = reproduction_page(blocks)
    ours = blocks[0].table.ours("clib", "", "a_auc")
    line = f"| CLIB | `clib` | 3 | 70.26 ± 1.28 | {ours.mean:.2f} ± {ours.std:.2f} | "
    error = (1.28**2 / 3 + ours.std**2 / 3) ** 0.5
    assert f"{line}{ours.mean - 70.26:+.2f} | {error:.2f} | agrees |" in section(text, "### A_AUC").splitlines()
    waiting = "| GDumb | `gdumb` | – | 53.20 ± 1.93 | – | – | – | not run yet |"
    assert waiting in section(text, "### A_AUC").splitlines()
    assert "| – | `mine` | 1 | – | " in section(text, "### A_AUC")
    assert "| Joint Training | `joint` | – | 96.03 | – | – | – | not run yet |" in text.splitlines()


def test_misses_are_listed_and_open_until_a_test_explains_them(blocks):
    text = reproduction_page(blocks)
    misses = section(text, "## What differs, and why")
    er = r"\| cifar10, i-Blurry-50-10, 5 tasks, memory 500 \| `er` \| A_AUC \| -1\S+ \| \d\.\d\d \| below \| open \|"
    assert re.search(er, misses)
    assert "| `clib` | A_AUC |" not in misses
    note = Note(dataset="cifar10", methods=["mir", "er"], metrics=["A_AUC"], text="ER was ill.", tested=True)
    told = reproduction_page(blocks, notes=[note], prose="\n- **ER-like.** All.\n")
    misses = section(told, "## What differs, and why")
    assert re.search(er.replace("open", "tested"), misses)
    assert re.search(r"`er` \| A_avg \|.* \| open \|", misses)  # of another metric nothing was said
    assert misses.rstrip().endswith(f"{note}\n\n- **ER-like.** All.")
    judged = [block.comparisons.dropna(subset="standard_error") for block in blocks]
    words = [verdict.split()[0] for found in judged for verdict in found["verdict"]]
    agree, below, above = (words.count(word) for word in ("agrees", "below", "above"))
    counted = f"Of {agree + below + above} numbers that are judged, {agree} agree, {above} are above and {below} below."
    assert f"{counted} Of these {above + below} misses, {misses.count('| open |')} are open." in told


def test_warnings_are_shown(blocks):
    text = reproduction_page(blocks).split("## cifar10, i-Blurry-50-10, 5 tasks, memory 1,000", 1)[1]
    table = section(text, "### A_AUC")
    assert re.search(r"\| ER-MIR \| `mir` \| 1 \| 61\.18 ± 1\.08 ⚠ \| .* \| not judged: see the warning \|", table)
    assert table.count("⚠ ER-MIR and Baseline-ER are identical to the last digit at K=1000") == 1


def test_runs_with_seconds_device_versions_and_commands(blocks):
    runs = section(reproduction_page(blocks), "### The runs")
    assert (
        "| `clib` | 1, 2, 3 | 102 (101 to 103) | GPU: Some GPU | bfloat16 | Linux x86_64, 16 cores | "
        "iblurry 0.1.0, torch 2.13.0, numpy 2.4.0, python 3.11.9 | 0123456789ab |" in runs.splitlines()
    )
    assert "iblurry run clib --dataset cifar10 --seeds 1,2,3" in runs.splitlines()
    assert "# mine was built in Python: experiment.json of its runs has every field" in runs.splitlines()


def test_runs_in_several_places_say_so(tmp_path):
    """A CPU is told from a GPU, and a precision that was not noted is not guessed."""
    places = [{"device": "cpu", "precision": "float32"}, {"precision": None, "commit": None}]
    places.append({"commit": "f" * 40 + "+"})
    runs = [read_run(write_run(tmp_path, usual("er", 1 + i), 57, **place)[0]) for i, place in enumerate(places)]
    row = next(
        line
        for line in section(reproduction_page(compare_with_paper(runs)), "### The runs").splitlines()
        if line.startswith("| `er`")
    )
    assert " | CPU / GPU: Some GPU | bfloat16 / float32 / not recorded | Linux" in row
    assert row.endswith(" | 0123456789ab / ffffffffffff+ / not recorded |")
    alone = section(reproduction_page(compare_with_paper(runs[:1])), "### The runs")
    assert "| `er` | 1 | 100 | CPU | float32 | Linux" in alone


def test_what_has_no_run_at_all_is_listed_once(blocks):
    rest = section(reproduction_page(blocks), "## The rest of the tables")
    assert "| cifar10, i-Blurry-50-10, 5 tasks, memory 200 | 4 | EWC++; BiC;" in rest
    assert "memory 1,000" not in rest
    assert rest.count("not run yet") == 10


def test_nothing_collected_is_said():
    text = reproduction_page(compare_with_paper([]))
    assert "No run has been collected for this configuration yet." in text
    assert "| CLIB | `clib` | – | 70.26 ± 1.28 | – | – | – | not run yet |" in text
    assert "What differs" not in text
    assert "### The runs" not in text


def test_the_page_is_stable_and_its_figures_are_where_it_says(blocks, tmp_path):
    text = reproduction_page(blocks, stem="repro")
    assert text == reproduction_page(blocks, stem="repro")
    drawn = draw_blocks(blocks, tmp_path / "images", stem="repro")
    linked = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert linked == ["images/repro-cifar10.png", "images/repro-cifar10-n50-m10-k1000-t5.png"]
    assert drawn == [tmp_path / path for path in linked]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    of_mine = figure_name(Configuration("shapes:classes=4", 50, 10, 20, 2), "r")
    assert of_mine == "r-shapes-classes-4-n50-m10-k20-t2.png"


def test_a_section_says_whose_orders_it_has(tmp_path):
    """And prints a command for them, but never as part of a row's name where the files lay."""
    stream = Published(folder="data/splits", content="of these files")
    runs = [read_run(write_run(tmp_path, usual("er", seed, stream=stream), 57)[0]) for seed in (1, 2, 3)]
    runs += [read_run(write_run(tmp_path, usual("er"), 58)[0])]
    text = reproduction_page(compare_with_paper(runs))
    published, drawn = text.split("\n## cifar10, i-Blurry-50-10")[1:]
    assert published.startswith(" (published), 5 tasks, memory 500\n\nOrders: the paper's own")
    assert drawn.startswith(", 5 tasks, memory 500\n\nOrders: drawn here")
    assert "| Baseline-ER | `er` | 3 |" in published
    assert "| Baseline-ER | `er` | 1 |" in drawn
    assert "iblurry run er --dataset cifar10 --seeds 1,2,3 --stream Published:folder=data/splits" in published
    images = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert images == ["images/reproduction-cifar10-published.png", "images/reproduction-cifar10.png"]
    assert "cifar10, i-Blurry-50-10, 5 tasks, memory 500" not in section(text, "## The rest of the tables")


def test_tables_are_tables(blocks):
    """Every line of a table has as many cells as its head."""
    for table in re.findall(r"(?:^\|.*\|\n)+", reproduction_page(blocks), flags=re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1


def test_the_noise_of_a_run_against_itself(tmp_path):
    """Of the same experiment and seed, by what differs between their places; without such pairs, not a word of it."""
    places = {"results": {}, "float32": {"precision": "float32"}, "again": {}}
    for number, (place, changes) in enumerate(places.items()):
        for seed in (1, 2):
            write_run(tmp_path / place, usual("er", seed), 60 + seed * number, wobble=0, **changes)
    write_run(tmp_path / "again", usual("er", 3), 10)  # of another seed
    write_run(tmp_path / "float32", usual("joint"), 90, wobble=0, precision="float32")
    write_run(tmp_path / "results", usual("joint"), 91, wobble=0)
    write_run(tmp_path / "again", usual("er", 1, memory=77), 10, data="other")
    write_run(tmp_path / "results", usual("er", 1, memory=77), 20)
    runs = [read_run(path.parent) for place in places for path in sorted((tmp_path / place).glob("*/experiment.json"))]
    text = section(reproduction_page([], repeats=runs), "## The noise of a run against itself")
    heads, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
    assert heads == "| what differs | methods | pairs | A_AUC | A_avg | A_last |"
    assert sorted(lines) == [  # seeds 1 and 2 are 1 and 2 points apart in float32, 2 and 4 when run again
        "| no recorded setting | `er` | 2 | 3.00 (4.00) | 3.00 (4.00) | 3.00 (4.00) |",
        "| precision bfloat16 / float32 | `er`, `joint` | 5 | 1.50 (2.00) | 1.50 (2.00) | 1.40 (2.00) |",
    ]
    assert "noise" not in reproduction_page([], repeats=runs[:1])


def test_the_committed_page_is_what_the_command_makes():
    runs = read_collected(ROOT / "results")
    made = reproduction_page(
        compare_with_paper(runs),
        repeats=[*runs, *read_repeats(ROOT / "results")],
        notes=read_notes(ROOT / "results"),
        prose=(ROOT / "docs" / "reproduction-notes.md").read_text("utf-8"),
    )
    assert (ROOT / "docs" / "reproduction.md").read_text("utf-8") == made, "run `make reproduction` and commit the page"
    for path in re.findall(r"!\[.*?\]\((.*?)\)", made):
        assert (ROOT / "docs" / path).is_file(), path


def test_collected_runs_are_small_enough_for_git():
    for path in (ROOT / "results").rglob("*"):
        assert path.is_dir() or path.stat().st_size <= 200_000, path


PLACES = {
    "main": Configuration("cifar10", 50, 10, 500, 5),
    "blurry": Configuration("cifar10", 0, 10, 500, 5, published=True),
    "100": Configuration("cifar100", 50, 10, 2000, 5),
}
ASKED = list(product(("er", "mir"), ("A_AUC", "A_avg"), PLACES))
NOTE = '[[note]]\nmethods = ["er", "mir"]\nmetrics = ["A_AUC"]\ntext = "A test\\nshowed it."\n'


def noted(tmp_path, text):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "notes.toml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "more, explained",
    [
        ("tested = true", {"er A_AUC main", "mir A_AUC main", "er A_AUC blurry", "mir A_AUC blurry"}),
        ("tested = true\nstream = 'i-Blurry-0-10'", {"er A_AUC blurry", "mir A_AUC blurry"}),
        ("tested = true\nstream = 'i-Blurry-0'", set()),
        ("tested = false", set()),
        ("", set()),
    ],
)
def test_which_numbers_a_note_explains(tmp_path, more, explained):
    (note,) = read_notes(noted(tmp_path, NOTE + more))
    found = [asked for asked in ASKED if note.explains(asked[0], asked[1], PLACES[asked[2]])]
    assert set(map(" ".join, found)) == explained
    assert str(note).startswith("- **`er`, `mir` in A_AUC on cifar10")
    assert str(note).endswith("A test showed it.")


@pytest.mark.parametrize(
    "text, named",
    [
        (NOTE.replace("A_AUC", "A_acg"), "A_acg"),
        (NOTE.replace("methods", "method"), "method"),
        (NOTE.replace("text", "test"), "test"),
        (NOTE.replace("note", "notes"), "note"),
        ("[[note]", "notes.toml"),
    ],
)
def test_what_is_no_note_is_refused(tmp_path, text, named):
    with pytest.raises(DataError, match=named):
        read_notes(noted(tmp_path, text))
