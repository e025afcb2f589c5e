"""What a person sees of runs on the way: bars on a terminal, now and then a line elsewhere, all on standard error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import click

from iblurry.experiment.callback import Callback

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

PAUSE = 60.0  # seconds between two lines of a run where there is no terminal


class ProgressDisplay:
    """The live part of the screen; `callback(name)` makes the callback of one more run.

    With `runs`, of so many runs in all, a bar on top tells how far they are together.
    """

    def __init__(self, title: str = "", runs: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self.console: Console = Console(stderr=True, highlight=False)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),  # less where the name is long
            TaskProgressColumn(),
            TextColumn("{task.fields[about]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,  # a run that is done leaves a line
        )
        self.runs, self.shares = runs, dict[int, float]()  # done of each run that was heard of
        self.whole = self.bars.add_task(title, total=runs, about=f"0 of {runs} runs") if runs else None

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def callback(self, name: str) -> RunBar:
        return RunBar(self, name)

    def count(self, run: object, share: float) -> None:
        """So much of a run is done."""
        self.shares[id(run)] = share
        if self.whole is not None:
            done = sum(share >= 1 for share in self.shares.values())
            self.bars.update(self.whole, completed=sum(self.shares.values()), about=f"{done} of {self.runs} runs")

    def say(self, sentence: str) -> None:
        """A line that stays."""
        if self.console.is_terminal:
            self.console.print(sentence, markup=False, soft_wrap=True)  # above the bars
        else:
            click.echo(sentence, err=True)


class RunBar(Callback):
    """Accuracy at the last query, learning rate, samples per second, and when it is done, a line that says so."""

    def __init__(self, display: ProgressDisplay, name: str) -> None:
        self.display, self.name = display, name
        self.bar: TaskID | None = None

    def is_done(self) -> None:
        """It was before, or will not be."""
        self.display.count(self, 1.0)

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
        self.display.count(self, position / self.samples)
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
