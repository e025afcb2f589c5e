"""What a person sees of runs on the way: bars on a terminal, now and then a line elsewhere, all on standard error."""

from __future__ import annotations

import time
from importlib.util import find_spec
from statistics import fmean
from typing import TYPE_CHECKING, Self

import click

from iblurry.experiment.callback import Callback

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn, TaskID

PAUSE = 60.0  # seconds between two lines of a run where there is no terminal


class ProgressDisplay:
    """The live part of the screen; `callback(name)` makes the callback of one more run.

    With `runs`, of so many in all, a bar on top tells how many are done and how long the others will take.
    """

    def __init__(self, title: str = "", runs: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self.console: Console = Console(stderr=True, highlight=False)
        self.is_watched = self.console.is_terminal or self.console.is_jupyter
        if self.console.is_jupyter:  # bars are widgets of a notebook; without these there are lines
            can = find_spec("ipywidgets") is not None
            self.console = Console(stderr=True, highlight=False, force_jupyter=can, force_terminal=can)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),  # less where the name is long
            TaskProgressColumn(),
            TextColumn("{task.fields[about]}"),
            _remaining_column(),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,  # a run that is done leaves a line
        )
        self.title, self.runs, self.spoke = title, runs, time.monotonic() if runs else 0.0
        self.watched: list[RunBar] = []
        self.at_a_time = 1  # as many runs as were seen to go on beside each other
        about = f"{self._so_far()}, starting"
        self.whole = self.bars.add_task(title, total=runs, about=about, is_whole=True) if runs else None

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def callback(self, name: str, row: str = "", *, is_done: bool = False) -> RunBar:
        """The callback of a run that is shown by this name; runs of one `row` are taken to go equally fast."""
        self.watched.append(RunBar(self, name, row))
        if is_done:
            self.watched[-1].is_done()
        return self.watched[-1]

    def count(self, now: float | None = None) -> None:
        """Counts what is done; `now`, where a run has ended: without a terminal a line says so now and then."""
        if self.whole is None:
            return
        self.at_a_time = max(self.at_a_time, sum(run.bar is not None for run in self.watched))
        completed = sum(run.share for run in self.watched)
        self.bars.update(self.whole, completed=completed, about=self._so_far(), visible=self.runs > 1)
        if now is not None and now - self.spoke > PAUSE and not self.console.is_terminal:
            self.spoke = now
            self.say(f"{self.title}: {self._so_far()}.")

    def seconds_left(self) -> float | None:
        """Each run goes on as it went; one that has not begun, as those of its row, or else as all; None: none has."""
        paces: dict[str, list[float]] = {}
        for run in self.watched:
            if run.pace is not None:
                paces.setdefault(run.row, []).append(run.pace)
        if not paces:
            return None
        usual = fmean(pace for row in paces.values() for pace in row)
        left = [
            (1 - run.share) * (run.pace or fmean(paces.get(run.row, [usual]))) for run in self.watched if run.share < 1
        ]
        return max([sum(left) / self.at_a_time, *left]) if left else 0.0

    def _so_far(self) -> str:
        counted, left = f"{sum(run.share >= 1 for run in self.watched)} of {self.runs} runs", self.seconds_left()
        return f"{counted}, about {duration(left)} to go" if left else counted

    def say(self, sentence: str) -> None:
        """A line that stays."""
        if self.console.is_terminal:
            self.console.print(sentence, markup=False, soft_wrap=True)  # above the bars
        else:
            click.echo(sentence, err=True)


def _remaining_column() -> ProgressColumn:
    """Time to go by the speed of the last seconds, but for the bar of all runs, which says it in words."""
    from rich.progress import Task, TimeRemainingColumn
    from rich.text import Text

    class Remaining(TimeRemainingColumn):
        def render(self, task: Task) -> Text:
            return Text("") if task.fields.get("is_whole") else super().render(task)

    return Remaining(compact=True)


class RunBar(Callback):
    """Accuracy at the last query, learning rate, samples per second, and when it is done, a line that says so."""

    def __init__(self, display: ProgressDisplay, name: str, row: str) -> None:
        self.display, self.name, self.row = display, name, row
        self.bar: TaskID | None = None
        self.share = self.first = self.took = 0.0  # done of the run, now and when it began here, and seconds since

    @property
    def pace(self) -> float | None:
        """Seconds that the whole run would take as it goes; None: it has not got on."""
        return self.took / (self.share - self.first) if self.share > self.first and self.took else None

    def is_done(self) -> None:
        """It was before, or will not be."""
        self.share = 1.0
        self.display.count()

    def remove(self) -> None:
        """Take its bar away, of a run that will not go on."""
        if self.bar is not None:
            self.display.bars.remove_task(self.bar)
            self.bar = None

    def on_run_start(self, name: str, position: int, samples: int) -> None:
        self.start, self.position, self.samples, self.accuracy = position, position, samples, ""
        self.began = self.spoke = time.monotonic()
        self.share, self.first, self.took = position / samples, position / samples, 0.0
        self.remove()  # its worker was lost
        self.bar = self.display.bars.add_task(self.name, total=samples, completed=position, about="")
        self.display.count()
        if position:
            self.on_message(f"continues from sample {position:,} of {samples:,}")

    def on_stage(self, text: str) -> None:
        assert self.bar is not None
        self.display.bars.update(self.bar, about=text)
        if not self.display.console.is_terminal:
            self.on_message(text)

    def on_progress(self, position: int, accuracy: float | None, lr: float) -> None:
        now, self.position = time.monotonic(), position
        self.accuracy = percent = "" if accuracy is None else f"{100 * accuracy:.1f} % "
        speed = (position - self.start) / max(now - self.began, 1e-9)
        assert self.bar is not None
        self.display.bars.update(self.bar, completed=position, about=f"{percent} lr {lr:.0e}  {speed:,.0f}/s")
        self.share, self.took = position / self.samples, now - self.began
        self.display.count(now if position >= self.samples else None)
        if position >= self.samples:
            self.remove()
            self.on_message(f"{percent}after {position:,} samples, {speed:,.0f} a second")
        elif now - self.spoke > PAUSE and not self.display.console.is_terminal:
            self.spoke = now
            self.on_message(f"{percent}after {position:,} of {self.samples:,} samples, {speed:,.0f} a second")

    def on_run_end(self) -> None:
        self.remove()  # a callback stopped it early
        self.is_done()

    def on_refit_progress(self, done: int, total: int) -> None:
        now, share = time.monotonic(), 100 * done / total
        self.took = now - self.began
        assert self.bar is not None
        self.display.bars.update(self.bar, about=f"{self.accuracy} refit {share:.0f} % of {total:,}")
        if now - self.spoke > PAUSE and not self.display.console.is_terminal:
            self.spoke = now
            self.on_message(
                f"after {self.position:,} of {self.samples:,} samples, {share:.0f} % of a refit's {total:,} updates"
            )

    def on_message(self, text: str) -> None:
        self.display.say(f"{self.name}: {text}")


def duration(seconds: float) -> str:
    """For people: 52 s, 7 min, 3.4 h, 5 days.

    >>> duration(52), duration(407), duration(12240), duration(400000)
    ('52 s', '6.8 min', '3.4 h', '4.6 days')
    """
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"
