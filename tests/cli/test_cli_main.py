"""The program as a whole: help, versions, exit codes, streams; and its words, frozen."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import click
import pytest

from iblurry.cli import main as main_module
from iblurry.cli.main import MOVED, VERBS, iblurry
from iblurry.version import __version__

SELECTING = (
    "STUDY",
    "--dataset",
    "--methods",
    "--only",
    "--seeds",
    "--scale",
    "--stream",
    "--published",
    "--equal-compute",
    "--equal-bytes",
    "--data-home",
)
CORRECTING = ("--wait", "--url", "--token", "--token-file", "--json")
FROZEN = {  # taking one away, or giving it another name, breaks somebody's script
    "iblurry": ["--version"],
    "iblurry run": [
        "[METHOD]...",
        *("--dataset", "--seeds", "--stream", "--disjoint", "--blur", "--tasks", "--mode", "--samples", "--share"),
        *("--validate", "--published", "--memory", "--network", "--query-every", "--set", "--grid"),
        *("--import", "--callback", "--metric"),
        *("--out", "--figure", "--data-home", "--device", "--precision", "--jobs", "--pack", "--threads"),
        *("--save-seconds", "--save-samples", "--again", "--json"),
    ],
    "iblurry tune": [
        *("METHOD", "--space", "--trials", "--pruner"),
        *("--dataset", "--seeds", "--stream", "--disjoint", "--blur", "--tasks", "--mode", "--samples", "--share"),
        *("--validate", "--published", "--memory", "--network", "--query-every", "--set", "--import"),
        *("--out", "--figure", "--data-home", "--device", "--precision", "--jobs", "--pack", "--threads"),
        *("--save-seconds", "--save-samples", "--again", "--json"),
    ],
    "iblurry show": ["[RUN]...", "--figure", "--import", "--metric", "--to", "--out", "--project", "--json"],
    "iblurry study": [
        *(*SELECTING, "--import", "--callback"),
        *("--out", "--on", "--device", "--precision", "--jobs", "--pack", "--threads", "--save-seconds"),
        *("--save-samples", "--again", "--dry-run", "--json"),
    ],
    "iblurry table": [
        *SELECTING,
        *("--runs", "--metric", "--paper", "--pairs", "--against", "--format", "--json", "--out", "--page"),
        "--import",
    ],
    "iblurry split": [
        *("--dataset", "--stream", "--tasks", "--disjoint", "--blur", "--seed", "--mode"),
        *("--published", "--import", "--figure", "--export", "--data-home", "--json"),
    ],
    "iblurry data": ["--import", "--home"],
    "iblurry data fetch": ["NAME", "--home"],
    "iblurry data import": ["NAME", "PATH", "--home"],
    "iblurry data list": ["--json", "--import", "--home"],
    "iblurry data show": ["SPEC", "--sheet", "--json", "--import", "--home"],
    "iblurry methods": ["[METHOD]...", "--import", "--json"],
    "iblurry live": [],
    "iblurry live serve": [
        *("--method", "--network", "--memory", "--image", "--max-classes", "--seed", "--updates-per-sample", "--batch"),
        *("--measure-every", "--initialise", "--freeze", "--augment", "--import"),
        *("--data-dir", "--from", "--host", "--port", "--token", "--token-file", "--json"),
        *("--device", "--threads", "--queue", "--idle-updates", "--unknown-rate", "--log-level", "--log-format"),
    ],
    "iblurry live correct": [],
    "iblurry live correct delete": ["CLASS", *CORRECTING],
    "iblurry live correct label": ["ID", "LABEL", *CORRECTING],
    "iblurry live correct merge": ["CLASS", "OTHER", *CORRECTING],
    "iblurry live correct relabel": ["NUMBER", "LABEL", *CORRECTING],
    "iblurry live correct remove": ["NUMBER...", *CORRECTING],
    "iblurry live correct rename": ["CLASS", "NAME", *CORRECTING],
    "iblurry live send": [
        *("PLACE...", "--label", "--shuffle", "--seed", "--limit", "--resume-key", "--skip-bad"),
        *("--held-out", "--wait", "--url", "--token", "--token-file", "--json", "--import"),
    ],
    "iblurry live ask": ["IMAGE...", "--top", "--url", "--token", "--token-file", "--json"],
    "iblurry export": ["FOLDER", "FILE", "--import", "--device", "--json"],
    "iblurry live backup": ["FOLDER", "FILE", "--json"],
    "iblurry live restore": ["FILE", "FOLDER", "--json"],
    "iblurry dev": [],
    "iblurry dev collect": ["[RUN]...", "--out", "--import", "--json"],
    "iblurry figure": [*SELECTING, "--kind", "--x", "--out", "--runs", "--metric", "--import", "--json"],
    "iblurry report": ["[DIR]", "--out", "--title", "--study", "--import", "--json"],
    "iblurry dev reproduction": ["[RESULTS]", "--out", "--notes", "--import", "--json"],
}


def commands(group, path):
    yield path, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            yield from commands(group.get_command(context, name), f"{path} {name}")


def words(command):
    context = click.Context(command)
    return [
        param.make_metavar(context) if isinstance(param, click.Argument) else param.opts[0] for param in command.params
    ]


def test_the_command_line_is_frozen():
    assert {path: words(command) for path, command in commands(iblurry, "iblurry")} == FROZEN


def test_the_command_is_installed():
    (script,) = entry_points(group="console_scripts", name="iblurry")
    assert script.load() is main_module.main


def test_help_fits_a_screen(call):
    said = call("--help")
    lines = said.out.splitlines()
    assert said.code == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for verb, about in VERBS.items():
        assert any(line.split(maxsplit=1) == [verb, about] for line in lines)
    assert call("-h") == said


def test_no_verb_is_help(call):
    assert call() == call("--help")


@pytest.mark.parametrize("path", list(FROZEN))
def test_every_help_fits_80_columns_and_names_every_option(call, path):
    said = call(*path.split()[1:], "--help")
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    for word in FROZEN[path]:
        assert word in said.out


def test_version(call):
    assert call("--version").out == f"iblurry, version {__version__}\n"


def test_an_unknown_verb(refused):
    assert "Did you mean 'run'?" in refused("rnu")
    assert "Did you mean 'serve'?" in refused("live", "srve")


@pytest.mark.parametrize("verb, now", MOVED.items())
def test_a_verb_of_an_earlier_version_names_the_one_of_now(refused, verb, now):
    assert f"Did you mean `iblurry {now}`?" in refused(verb, "digits", "--limit", 3)
    assert f"iblurry {now.split(' --')[0]}" in FROZEN


@pytest.mark.parametrize("verb", [path.split()[1:] for path in FROZEN], ids=" ".join)
def test_help_opens_neither_torch_nor_numpy(verb):
    code = f"""
import sys
from iblurry.cli.main import main
try:
    main({[*verb, "--help"]})
finally:
    print([name for name in ("torch", "numpy", "rich", "matplotlib", "fastapi") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Usage: {' '.join(['iblurry', *verb])} ")
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [("data", "list", "--json"), ("split",)])
def test_a_reader_that_has_seen_enough_is_no_traceback(program, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*program, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_behind_standard_output(program):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*program, "data", "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("iblurry: The output: No space left on device.")
    assert done.stderr.count("\n") == 1


def test_a_terminal_without_the_characters(apart, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    (said,) = apart("split")
    assert (said.code, said.err) == (0, "")
    assert "i-Blurry-50-10, seed 1" in said.out
    assert "?" in said.out


@pytest.mark.parametrize(
    "error, code, sentence",
    [
        (PermissionError(13, "Permission denied", "runs/x"), 2, "runs/x: Permission denied. Give a place"),
        (OSError(28, "No space left on device"), 2, "The output: No space left on device. Give a place"),
        (OSError("odd"), 2, "The output: odd. Give a place"),
        (MemoryError("93 TiB"), 2, "too little memory (93 TiB)"),
        (KeyboardInterrupt(), 130, "Interrupted; saved results are kept"),
    ],
)
def test_what_the_system_refuses_is_said_in_a_sentence(call, monkeypatch, error, code, sentence):
    def fail(*_):
        raise error

    monkeypatch.setattr("iblurry.data.load.load", fail)
    said = call("data", "show", "digits")
    assert (said.code, said.out) == (code, "")
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_a_defect_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr("iblurry.data.load.load", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main_module.main(["data", "show", "digits"])
