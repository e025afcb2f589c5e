"""Types of values on the command line that click does not have."""

from __future__ import annotations

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """`click.FloatRange` that refuses "nan", which compares with nothing and would pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is no number in the range {self._describe_range()}.", param, ctx)
        return number


class Shape(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Channels, height and width of an image, such as 3x32x32."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int, int]:
        try:
            channels, height, width = (int(size) for size in str(value).lower().split("x"))
        except ValueError:
            channels = height = width = 0
        if min(channels, height, width) < 1:
            self.fail(f"{value}: give channels x height x width, like 3x32x32 or 1x8x8.", param, ctx)
        return channels, height, width


class Seeds(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Seeds, separated by commas, none of them twice."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            seeds = tuple(int(seed) for seed in str(value).split(","))
        except ValueError:
            seeds = (-1,)
        if min(seeds) < 0:
            self.fail(f"{value}: give whole numbers from 0, separated by commas, like 1,2,3.", param, ctx)
        if len(set(seeds)) < len(seeds):
            self.fail(f"{value} names a seed twice; a seed is one run, so name each once.", param, ctx)
        return seeds


PERCENT = NumberRange(0, 100)
