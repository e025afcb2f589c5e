"""What of a study is wanted: on which data, which rows and columns, at what scale."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from iblurry.analysis.describe import make_file_name, seed_ranges
from iblurry.components.edit import component
from iblurry.errors import InputError
from iblurry.streams.stream import Stream
from iblurry.studies.equal import EQUAL, equal_bytes, equal_compute
from iblurry.studies.study import SEEDS, PlannedRun, Study


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What of a study is run, tabulated or drawn."""

    study: Study
    dataset: str  # as in `Experiment.of`
    rows: tuple[str, ...] | None = None  # the study's or any other methods, as `iblurry run` and --set write them
    columns: tuple[str, ...] | None = None  # keep only these of the study's
    seeds: tuple[int, ...] = SEEDS
    scale: float = 1.0  # share of the stream, up to 1
    stream: str | None = None  # instead of i-Blurry, as --stream writes it: "Gaussian:sigma=0.2"
    published: Path | None = None  # folder of published split files, instead of orders that are drawn
    equal_compute: str | None = None  # the row whose training FLOPs every row gets
    equal_bytes: str | None = None  # the row whose bytes every row holds, by its memory
    data_home: Path | None = None
    out: Path | None = None  # where its runs go, if that is not the default folder

    def __post_init__(self) -> None:
        for name in self.rows or ():
            if (self.rows or ()).count(name) > 1:
                raise InputError(f"{name} is named {(self.rows or ()).count(name)} times; name each once.")
        for option, reference in self._references().items():
            if EQUAL in self.study.columns(self.dataset):
                raise InputError(
                    f"The study {self.study.name} sets equal compute beside the methods' own pace itself; leave out "
                    f"{option} {reference}, or give it to another study, such as main."
                )

    @cached_property
    def planned(self) -> list[PlannedRun]:
        """The runs that are planned: column by column, row by row, seed by seed."""
        planned = own = replace(self.study, rows=self.row_names).plan(
            self.dataset,
            columns=self.columns,
            seeds=self.seeds,
            scale=self.scale,
            data_home=self.data_home,
            **self._order(),
        )
        if self.equal_bytes is not None:
            planned = equal_bytes(planned, self.equal_bytes, self.data_home)
        if self.equal_compute is not None:  # at last, as a larger memory may cost more; the reference has its own
            planned = equal_compute(planned, self.equal_compute, self.data_home, places=own)
        return planned

    def _order(self) -> dict[str, Any]:
        """The fields of experiments that say which stream they have."""
        given: dict[str, Any] = {}
        if self.stream is not None:
            kind: Any = Stream  # abstract, which mypy takes for a mistake
            given["stream"] = component(kind, self.stream)
        return given | ({"published": str(self.published)} if self.published is not None else {})

    @property
    def equal(self) -> str:
        """What was made equal, in words for a title; "" where nothing was."""
        words = (f"{option[2:].replace('-', ' ')} (of {row})" for option, row in self._references().items())
        return ", ".join(words)

    def _references(self) -> dict[str, str]:
        """Rows that others are made equal to, by the option that says so."""
        given = {"--equal-compute": self.equal_compute, "--equal-bytes": self.equal_bytes}
        return {option: row for option, row in given.items() if row is not None}

    @property
    def names_orders(self) -> bool:
        """Whether it says on which orders its runs are, so that runs on others are none of it."""
        return self.stream is not None or self.published is not None

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of the rows, in order."""
        return self.rows or self.study.rows

    @property
    def slug(self) -> str:
        """A name for files and labels: the study and its data, and whatever is chosen that is not the default."""
        words = [self.study.name, self.dataset]
        words += self.row_names if self.row_names != self.study.rows else ()
        words += self.columns or ()
        words += [f"seeds {seed_ranges(self.seeds)}"] if self.seeds != SEEDS else []
        words += [f"scale {self.scale:g}"] if self.scale != 1 else []
        words += [self.stream] if self.stream is not None else []
        words += ["published"] if self.published is not None else []
        words += [f"{option[2:].replace('-', ' ')} {row}" for option, row in self._references().items()]
        return make_file_name(words)

    def command(self) -> str:
        """`iblurry study ...` that runs what is missing of it."""
        words = ["iblurry", "study", self.study.name, "--dataset", self.dataset]
        given = {
            "--methods": ",".join(self.rows or ()),
            "--only": ",".join(self.columns or ()),
            "--seeds": seed_ranges(self.seeds) if self.seeds != SEEDS else "",
            "--scale": f"{self.scale:g}" if self.scale != 1 else "",
            "--stream": self.stream or "",
            "--published": str(self.published or ""),
        } | self._references()
        words += [word for option, value in given.items() if value for word in (option, value)]
        words += [f"--{name}={value}" for name, value in (("data-home", self.data_home), ("out", self.out)) if value]
        return shlex.join(words)
