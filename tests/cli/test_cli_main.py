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

STREAM = "--dataset --seeds --stream --disjoint --blur --tasks --mode --samples --share --validate --published"
EXPERIMENT = f"{STREAM} --memory --network --query-every --set"
MACHINE = "--device --precision --jobs --pack --threads --save-seconds --save-samples --again"
CHOICE = "--dataset --methods --only --seeds --scale --stream --published --equal-compute --equal-bytes --data-home"
SERVICE = "--url --token --token-file --json"
FROZEN = {  # taking one away, or giving it another name, breaks somebody's script
    "iblurry": "--version",
    "iblurry run": f"[METHOD]... {EXPERIMENT} --grid --import --callback --metric --out --figure --data-home {MACHINE} "
    "--json",
    "iblurry tune": f"METHOD --space --trials --pruner {EXPERIMENT} --import --out --figure --data-home {MACHINE} "
    "--json",
    "iblurry show": "[RUN]... --figure --import --metric --to --out --project --json",
    "iblurry study": f"STUDY {CHOICE} --import --callback --out --on {MACHINE} --dry-run --json",
    "iblurry table": f"STUDY {CHOICE} --runs --metric --paper --pairs --against --format --json --out --page --import",
    "iblurry figure": f"STUDY {CHOICE} --kind --x --out --runs --metric --import --json",
    "iblurry report": "[DIR] --out --title --study --import --json",
    "iblurry split": "--dataset --stream --tasks --disjoint --blur --seed --mode --published --import --figure "
    "--export --data-home --json",
    "iblurry data": "--import --home",
    "iblurry data fetch": "NAME --home",
    "iblurry data import": "NAME PATH --home",
    "iblurry data list": "--json --import --home",
    "iblurry data show": "SPEC --sheet --json --import --home",
    "iblurry methods": "[METHOD]... --import --json",
    "iblurry export": "FOLDER FILE --import --device --json",
    "iblurry live": "",
    "iblurry live serve": "--method --network --memory --image --max-classes --seed --updates-per-sample --batch "
    "--measure-every --initialise --freeze --augment --import --data-dir --from --host --port --token --token-file "
    "--json --device --threads --queue --idle-updates --unknown-rate --log-level --log-format",
    "iblurry live send": "PLACE... --label --shuffle --seed --limit --resume-key --skip-bad --held-out --wait --url "
    "--token --token-file --json --import",
    "iblurry live ask": f"IMAGE... --top {SERVICE}",
    "iblurry live correct": "",
    "iblurry live correct delete": f"CLASS --wait {SERVICE}",
    "iblurry live correct label": f"ID LABEL --wait {SERVICE}",
    "iblurry live correct merge": f"CLASS OTHER --wait {SERVICE}",
    "iblurry live correct relabel": f"NUMBER LABEL --wait {SERVICE}",
    "iblurry live correct remove": f"NUMBER... --wait {SERVICE}",
    "iblurry live correct rename": f"CLASS NAME --wait {SERVICE}",
    "iblurry live backup": "FOLDER FILE --json",
    "iblurry live restore": "FILE FOLDER --json",
    "iblurry dev": "",
    "iblurry dev collect": "[RUN]... --out --import --json",
    "iblurry dev reproduction": "[RESULTS] --out --notes --import --json",
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
    found = {path: words(command) for path, command in commands(iblurry, "iblurry")}
    assert found == {path: line.split() for path, line in FROZEN.items()}
    assert len(VERBS) <= 13


def test_the_command_is_installed():
    (script,) = entry_points(group="console_scripts", name="iblurry")
    assert script.load() is main_module.main


def test_help_fits_a_screen(call):
    said = call("--help")
    lines = said.out.splitlines()
    assert len(lines) <= 24
    for verb, about in VERBS.items():
        assert any(line.split(maxsplit=1) == [verb, about] for line in lines)
    assert call("-h") == call() == said
    assert call("--version").out == f"iblurry, version {__version__}\n"


@pytest.mark.parametrize("path", FROZEN)
def test_every_help_fits_80_columns_and_names_every_option(call, path):
    said = call(*path.split()[1:], "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: {path} ")
    assert max(map(len, said.out.splitlines())) <= 80
    for word in FROZEN[path].split():
        assert word in said.out


def test_help_opens_neither_torch_nor_numpy():
    code = """if True:
        import sys
        from iblurry.cli.main import main
        for path in sys.argv[1:]:
            try:
                main([*path.split()[1:], "--help"])
            except SystemExit:
                pass
        sys.exit(str([name for name in ("torch", "numpy", "rich", "matplotlib", "fastapi") if name in sys.modules]))
    """
    done = subprocess.run([sys.executable, "-c", code, *FROZEN], capture_output=True, text=True, check=False)
    assert done.stderr == "[]\n"


def test_an_unknown_verb(refused):
    assert "Did you mean 'run'?" in refused("rnu")
    assert "Did you mean 'serve'?" in refused("live", "srve")


@pytest.mark.parametrize("verb, now", MOVED.items())
def test_a_verb_of_an_earlier_version_names_the_one_of_now(refused, verb, now):
    assert f"Did you mean `iblurry {now}`?" in refused(verb, "digits", "--limit", 3)
    assert f"iblurry {now.split(' --')[0]}" in FROZEN


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
    "error, code, named",
    [
        (PermissionError(13, "Permission denied", "runs/x"), 2, "runs/x: Permission denied."),
        (OSError(28, "No space left on device"), 2, "The output: No space left on device."),
        (OSError("odd"), 2, "The output: odd."),
        (MemoryError("93 TiB"), 2, "(93 TiB)"),
        (KeyboardInterrupt(), 130, "Interrupted"),
    ],
)
def test_what_the_system_refuses_is_said_in_a_sentence(call, monkeypatch, error, code, named):
    def fail(*_):
        raise error

    monkeypatch.setattr("iblurry.data.load.load", fail)
    said = call("data", "show", "digits")
    assert (said.code, said.out) == (code, "")
    assert named in said.err
    assert "\n" not in said.err.strip()


def test_a_defect_of_ours_is_not_hidden(monkeypatch):
    monkeypatch.setattr("iblurry.data.load.load", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main_module.main(["data", "show", "digits"])
