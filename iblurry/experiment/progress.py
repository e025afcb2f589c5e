"""What a person sees of a run while it goes: how far, how good, how fast, how long still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class Watcher(Protocol):
    """Whoever wants to know how a run is going."""

    def begin(self, name: str, at: int, samples: int) -> None: ...
    def move(self, at: int, accuracy: float | None, rate: float) -> None: ...
    def say(self, sentence: str) -> None: ...


class Silent:
    """Sees nothing; keeps what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def begin(self, name: str, at: int, samples: int) -> None:
        self.at = at

    def move(self, at: int, accuracy: float | None, rate: float) -> None:
        self.at = at

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


class Bars:
    """The bars of several runs; `bar()` makes a watcher for one more."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def bar(self) -> Bar:
        return Bar(self.progress)

    def say(self, sentence: str) -> None:
        """A remark above the bars."""
        self.progress.console.print(sentence, style="yellow", markup=False, highlight=False)


class Bar:
    """One run: accuracy of the last query, learning rate, samples per second, time left."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def begin(self, name: str, at: int, samples: int) -> None:
        self._bar = self.progress.add_task(name, total=samples, completed=at, accuracy="", rate="", speed="")

    def move(self, at: int, accuracy: float | None, rate: float) -> None:
        speed = self.progress.tasks[self._bar].finished_speed or self.progress.tasks[self._bar].speed
        self.progress.update(
            self._bar,
            completed=at,
            accuracy="" if accuracy is None else f"{100 * accuracy:5.1f} %",
            rate=f"lr {rate:.1e}",
            speed="" if speed is None else f"{speed:.0f}/s",
        )

    def say(self, sentence: str) -> None:
        self.progress.console.print(sentence, style="yellow", markup=False, highlight=False)
