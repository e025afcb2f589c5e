"""What a person sees of runs on the way: bars on a terminal, now and then a line elsewhere, all on standard error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, Self

import click

from iblurry.experiment.callback import Callback

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn, TaskID

PAUSE = 60.0  # seconds between two lines of a run where there is no terminal


class RunForecast(Protocol):
    """How long runs will take, learnt from those that have ended: `studies.forecast.Forecast`."""

    def left(self, done: Mapping[str, float]) -> float | None: ...

    def learn(self, name: str, seconds: float) -> None: ...


class ProgressDisplay:
    """The live part of the screen; `callback(name)` makes the callback of one more run.

    With `runs`, of so many runs in all, a bar on top tells how far they are together; with a `forecast`, how long they
    will take yet, which ended runs correct: of `pack` side by side, each with its share of the time.
    """

    def __init__(self, title: str = "", runs: int = 0, forecast: RunForecast | None = None, pack: int = 1) -> None:
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
        self.title, self.runs, self.forecast, self.pack = title, runs, forecast, pack
        self.shares: dict[str, float] = {}  # done of each run that was heard of
        self.spoke = time.monotonic() if forecast else 0.0
        about, is_foreseen = self._so_far(), forecast is not None
        self.whole = self.bars.add_task(title, total=runs, about=about, is_foreseen=is_foreseen) if runs else None

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def callback(self, name: str, run: str | None = None) -> RunBar:
        """The callback of a run that is shown by this name; `run` is what the forecast knows it by."""
        return RunBar(self, name, run or name)

    def count(self, run: str, share: float, seconds: float | None = None) -> None:
        """So much of a run is done; one that has ended took so many seconds, if it is known."""
        self.shares[run] = share
        if seconds is not None and self.forecast is not None:
            self.forecast.learn(run, seconds / self.pack)
        if self.whole is not None:
            self.bars.update(self.whole, completed=sum(self.shares.values()), about=self._so_far())
        if seconds is not None and self.forecast is not None and not self.console.is_terminal:
            now = time.monotonic()
            if now - self.spoke > PAUSE:
                self.spoke = now
                self.say(f"{self.title}: {self._so_far()}.")

    def _so_far(self) -> str:
        counted = f"{sum(share >= 1 for share in self.shares.values())} of {self.runs} runs"
        left = self.forecast.left(self.shares) if self.forecast is not None else None
        if not left:  # not known, or nothing
            return counted
        return f"{counted}, about {duration(left)} to go"

    def say(self, sentence: str) -> None:
        """A line that stays."""
        if self.console.is_terminal:
            self.console.print(sentence, markup=False, soft_wrap=True)  # above the bars
        else:
            click.echo(sentence, err=True)


def _remaining_column() -> ProgressColumn:
    """Time to go by the speed of the last seconds, but for a bar that has a forecast."""
    from rich.progress import Task, TimeRemainingColumn
    from rich.text import Text

    class Remaining(TimeRemainingColumn):
        def render(self, task: Task) -> Text:
            return Text("") if task.fields.get("is_foreseen") else super().render(task)

    return Remaining(compact=True)


class RunBar(Callback):
    """Accuracy at the last query, learning rate, samples per second, and when it is done, a line that says so."""

    def __init__(self, display: ProgressDisplay, name: str, run: str) -> None:
        self.display, self.name, self.run = display, name, run
        self.bar: TaskID | None = None

    def is_done(self) -> None:
        """It was before, or will not be."""
        self.display.count(self.run, 1.0)

    def remove(self) -> None:
        """Take its bar away, of a run that will not go on."""
        if self.bar is not None:
            self.display.bars.remove_task(self.bar)
            self.bar = None

    def on_run_start(self, name: str, position: int, samples: int) -> None:
        self.start, self.position, self.samples, self.accuracy = position, position, samples, ""
        self.began = self.spoke = time.monotonic()
        self.remove()  # its worker was lost
        self.bar = self.display.bars.add_task(self.name, total=samples, completed=position, about="")
        if position:
            self.on_message(f"goes on from sample {position:,} of {samples:,}")

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
        whole = (now - self.began) * self.samples / max(1, self.samples - self.start)  # as if it had begun at 0
        self.display.count(self.run, position / self.samples, whole if position >= self.samples else None)
        if position >= self.samples:
            self.remove()
            self.on_message(f"{percent}after {position:,} samples, {speed:,.0f} a second")
        elif now - self.spoke > PAUSE and not self.display.console.is_terminal:
            self.spoke = now
            self.on_message(f"{percent}after {position:,} of {self.samples:,} samples, {speed:,.0f} a second")

    def on_run_end(self) -> None:
        if self.bar is not None:  # a callback stopped it early
            self.display.bars.remove_task(self.bar)
            self.bar = None
        self.is_done()

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
    """For people: 52 s, 7 min, 3.4 h, 5 days.

    >>> duration(52), duration(407), duration(12240), duration(400000)
    ('52 s', '6.8 min', '3.4 h', '4.6 days')
    """
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"
