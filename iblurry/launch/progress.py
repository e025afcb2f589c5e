"""What a person sees of runs on the way: bars on a terminal, now and then a line elsewhere, all on standard error."""

from __future__ import annotations

import time
from importlib.util import find_spec
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
        self.title, self.runs = title, runs
        self.began = self.spoke = time.monotonic() if runs else 0.0
        self.watched: list[RunBar] = []
        about = f"{self._so_far()}, starting"
        self.whole = self.bars.add_task(title, total=runs, about=about, is_whole=True) if runs else None

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def callback(self, name: str, *, is_done: bool = False) -> RunBar:
        """The callback of a run that is shown by this name."""
        self.watched.append(RunBar(self, name))
        if is_done:
            self.watched[-1].first = 1.0
            self.watched[-1].on_run_end()
        return self.watched[-1]

    def count(self, now: float | None = None) -> None:
        """Counts what is done; `now`, where a run has ended: without a terminal a line says so now and then."""
        if self.whole is None:
            return
        completed = sum(run.share for run in self.watched)
        self.bars.update(self.whole, completed=completed, about=self._so_far(), visible=self.runs > 1)
        if now is not None and now - self.spoke > PAUSE and not self.console.is_terminal:
            self.spoke = now
            self.say(f"{self.title}: {self._so_far()}.")

    def seconds_left(self) -> float | None:
        """Estimates the time left by the rate so far of all runs together; None: none has got on."""
        gained = sum(run.share - run.first for run in self.watched)
        left = self.runs - sum(run.share for run in self.watched)
        return left * (time.monotonic() - self.began) / gained if gained else None

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

    def __init__(self, display: ProgressDisplay, name: str) -> None:
        self.display, self.name = display, name
        self.bar: TaskID | None = None
        self.share = self.first = 0.0  # done of the run, now and when it began here

    def remove(self) -> None:
        """Take its bar away, of a run that will not go on."""
        if self.bar is not None:
            self.display.bars.remove_task(self.bar)
            self.bar = None

    def on_run_start(self, name: str, position: int, samples: int) -> None:
        self.start, self.position, self.samples, self.accuracy = position, position, samples, ""
        self.began = self.spoke = time.monotonic()
        self.share = self.first = position / samples
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
        self.share = position / self.samples
        self.display.count(now if position >= self.samples else None)
        if position >= self.samples:
            self.remove()
            self.on_message(f"{percent}after {position:,} samples, {speed:,.0f} a second")
        elif now - self.spoke > PAUSE and not self.display.console.is_terminal:
            self.spoke = now
            self.on_message(f"{percent}after {position:,} of {self.samples:,} samples, {speed:,.0f} a second")

    def on_run_end(self) -> None:
        self.remove()  # a callback stopped it early
        self.share = 1.0
        self.display.count()

    def on_refit_progress(self, done: int, total: int) -> None:
        now, share = time.monotonic(), 100 * done / total
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
    """Writes seconds for people: 52 s, 7 min, 3.4 h, 5 days.

    >>> duration(52), duration(407), duration(12240), duration(400000)
    ('52 s', '6.8 min', '3.4 h', '4.6 days')
    """
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"
