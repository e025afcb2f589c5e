"""The command `iblurry`: a handful of verbs, each in a file of its own that is opened only when it is called."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from iblurry.cli.verbs import FAILED, INTERRUPTED, Verbs
from iblurry.errors import IblurryError, RunFailedError, UnknownNameError
from iblurry.version import __version__

VERBS = {
    "run": "Run methods on a stream; print a table, draw a figure.",
    "tune": "Search for the best fields of a method, with Optuna.",
    "show": "Print the table of runs again, or write them to a logger.",
    "study": "Run every experiment behind a table or figure of the paper.",
    "table": "Print the table of a study beside the paper's, also for LaTeX.",
    "figure": "Draw a study: curves, sweeps, bars, memories, forgetting.",
    "report": "Write one HTML page of all runs in a folder.",
    "split": "Show, draw and export a stream: which class comes when.",
    "data": "List, fetch, import and look at data sets.",
    "methods": "List the methods: what they are made of, store and cost.",
    "export": "Write the network of a run or service: torch.export, ONNX.",
    "live": "A service that learns what it is sent, and answers meanwhile.",
    "dev": "For maintainers: keep results, compare them with the paper.",
}
MOVED = {  # verbs of earlier versions
    **{verb: f"live {verb}" for verb in ("serve", "send", "ask", "correct", "backup", "restore")},
    **{verb: f"dev {verb}" for verb in ("collect", "reproduction")},
    "log": "show --to",
}
OWN = {  # kinds of things that users bring
    *("admission", "rehearsal", "term", "gradient", "schedule", "readout", "optimizer", "transform", "stream"),
    *("network", "method", "callback", "data source"),
}


iblurry = Verbs(
    "iblurry",
    package="iblurry.cli",
    verbs=VERBS,
    files={"table": "study", "figure": "study"},
    moved=MOVED,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80, "show_default": True},
    help="Online continual learning on i-Blurry streams. Begin with `iblurry run`.",
    epilog="All have -h and --json. Exit: 0 done, 1 failed, 2 refused, 130 interrupted.",
)
click.version_option(__version__, prog_name="iblurry")(iblurry)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the program; an error on purpose is one sentence and exit code 2, never a traceback.

    An exception in a run that is not one of ours, such as one of a user's part, is one sentence and exit code 1; the
    traceback is in the run's folder.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    _print_any_character()
    try:
        code = iblurry.main(args=given, prog_name="iblurry", standalone_mode=False)
    except RunFailedError as error:
        if error.is_system:
            _refuse(str(error))
        click.echo(f"iblurry: {error}", err=True)
        sys.exit(FAILED)
    except IblurryError as error:
        may_be_own = isinstance(error, UnknownNameError) and error.kind in OWN and "--import" not in given
        _refuse(f"{error} To use your own, add --import FILE.py." if may_be_own else str(error))
    except click.ClickException as error:
        _refuse(_usage(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("iblurry: Interrupted; saved results are kept, and the same command continues.", err=True)
        sys.exit(INTERRUPTED)
    except MemoryError as error:
        _refuse(f"This machine has too little memory ({error}); ask for less: fewer or smaller images, or --memory.")
    except OSError as error:
        _refuse(_trouble(error))
    sys.exit(code if isinstance(code, int) else 0)


def _print_any_character() -> None:
    """Where the terminal has no ± or ↑, a ? stands in its place, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _usage(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = " ".join(error.format_message().split())  # a list of choices comes in lines
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} See `{context.command_path if context else 'iblurry'} --help`."


def _trouble(error: OSError) -> str:
    """What the system said, as a sentence; an error without a file is that of a stream, such as standard output."""
    where = error.filename if error.filename is not None else "The output"
    return f"{where}: {error.strerror or error}. Give a place that can be read and written, with room on its disk."


def _refuse(sentence: str) -> NoReturn:
    from iblurry.data.labels import printable  # a file's name may hold what moves the cursor

    click.echo(f"iblurry: {printable(sentence)}", err=True)
    sys.exit(2)
