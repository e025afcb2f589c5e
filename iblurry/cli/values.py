"""Kinds of values on the command line, each refused in a sentence that says what is allowed."""

from __future__ import annotations

import math
from typing import Any

import click

from iblurry.errors import InputError


class Whole(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """A whole number, no less than the least."""

    name = "whole number"

    def __init__(self, least: int) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = _number(int, value)
        if number is None or number < self.least:
            raise InputError(f"{_name(param)} {value}: give a whole number from {self.least}.")
        return int(number)


class Number(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """A number in a range, its ends included."""

    name = "number"

    def __init__(self, least: float, most: float = math.inf) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = _number(float, value)
        if number is None or not self.least <= number <= self.most:
            end = f" to {self.most:g}" if math.isfinite(self.most) else ""
            raise InputError(f"{_name(param)} {value}: give a number from {self.least:g}{end}.")
        return float(number)


class Shape(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Channels, height and width of an image, such as 3x32x32."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int, int]:
        sizes = [_number(int, size) for size in str(value).lower().split("x")]
        whole = [int(size) for size in sizes if size is not None and size >= 1]
        if len(whole) != 3 or len(sizes) != 3:
            raise InputError(f"{_name(param)} {value}: give channels x height x width, like 3x32x32 or 1x8x8.")
        return whole[0], whole[1], whole[2]


class Seeds(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Seeds, separated by commas, none of them twice."""

    name = "list"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        seeds = [_number(int, seed) for seed in str(value).split(",")]
        whole = tuple(int(seed) for seed in seeds if seed is not None and seed >= 0)
        if len(whole) < len(seeds):
            raise InputError(f"{_name(param)} {value}: give whole numbers from 0, separated by commas, like 1,2,3.")
        if len(set(whole)) < len(whole):
            raise InputError(f"{_name(param)} {value} names a seed twice; a seed is one run, so name each once.")
        return whole


PERCENT = Number(0, 100)


def _number(kind: type[int] | type[float], value: Any) -> float | int | None:
    try:
        return kind(value)
    except (ValueError, OverflowError):
        return None


def _name(param: click.Parameter | None) -> str:
    return max(param.opts, key=len) if param is not None else "The value"
