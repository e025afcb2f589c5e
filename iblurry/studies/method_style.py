"""How a method looks: the same colour, line and marker in every figure, report and page, whatever stands beside it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Okabe and Ito's palette without its yellow, which is faint on white; then colours of Tol's schemes that are far from
# it. The pages have the same under the names --c0, --c1, ... in web/style.css, each with enough contrast on its ground.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00"),
    *("#882255", "#999933", "#777777"),
    *("#332288", "#D01C8B", "#7A4419", "#7CAE00"),
    *("#3333DD", "#D6203C", "#A63AD6", "#0B4D1F", "#1B7F86", "#5C5470"),
)
LINES = (  # with the markers, they carry it in black and white; the report draws the same
    *("-", (0, (6, 2)), (0, (6, 2, 1.5, 2)), (0, (1.5, 1.5))),
    *((0, (6, 2, 1.5, 2, 1.5, 2)), (0, (3, 3)), (0, (10, 3))),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
FILLS = ("left", "right", "bottom", "top")  # of a variant's marker; an empty one stands for the paper's numbers
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "|||", "ooo", "---", "++")
FAMILIES: dict[str, tuple[str, ...]] = {  # by its place here a method has its colour; after it, its named variants
    "clib": ("clib-reservoir", "clib-stream", "clib-exponential", "clib-balanced", "clib-averaged"),
    "er": ("er-constant", "er-averaged"),
    "mir": (),
    "bic": (),
    "rm": (),
    "ewc": ("ewc schedule=Constant",),
    "gdumb": (),
    "agem": (),
    "gss": (),
    "joint": (),
    "sdp": (),
    "mkd": (),
    "derpp": (),
    "sar": (),
    "er-ace": (),
    "balm": (),
    "slda": ("ncm", "ranpac", "randumb"),  # closed forms: one colour
}
OWN_MARKERS = ("p", "h", "d", "H")  # of methods that are not the package's
OWN_COLOURS = len(COLOURS) - len(FAMILIES)
OWN = OWN_COLOURS * len(OWN_MARKERS)  # looks of such methods
VARIANTS = 1 + len(LINES) * len(FILLS)  # looks of a method's variants, itself included
FIXED = 2 + 2 * max(map(len, FAMILIES.values()))  # of them, those kept for named variants and all of them as released


@dataclass(frozen=True)
class MethodStyle:
    """What tells a row of a table from the others, in colour and without.

    Parameters
    ----------
    family : int
        The method's place in FAMILIES; from len(FAMILIES) on for methods that are not the package's.
    variant : int
        0 for the method itself; variants have its colour and marker with another line, fill and hatch.
    """

    family: int
    variant: int

    @property
    def colour_number(self) -> int:
        """Place in COLOURS, and in the style sheet of the pages."""
        return self.family if self._own < 0 else len(FAMILIES) + self._own % OWN_COLOURS

    @property
    def line_number(self) -> int:
        """Place in LINES."""
        first = self.family if self._own < 0 else self._own // OWN_COLOURS
        return (first + self.variant) % len(LINES)

    @property
    def colour(self) -> str:
        return COLOURS[self.colour_number]

    @property
    def line(self) -> Any:
        return LINES[self.line_number]

    @property
    def marker(self) -> str:
        turn = self._own % OWN_COLOURS + self._own // OWN_COLOURS  # so that all pairs of colour and marker occur
        return MARKERS[self.family % len(MARKERS)] if self._own < 0 else OWN_MARKERS[turn % len(OWN_MARKERS)]

    @property
    def fill(self) -> Any:
        return FILLS[(self.variant - 1) % len(FILLS)] if self.variant else "full"  # all pairs with a line occur

    @property
    def hatch(self) -> str:
        return HATCHES[(self.family + self.variant) % len(HATCHES)]

    @property
    def _own(self) -> int:
        return self.family - len(FAMILIES)


def method_styles(rows: Iterable[str]) -> dict[str, MethodStyle]:
    """The styles of rows that are shown together, such as "clib", "clib-released" or "clib admission=Balanced".

    Built-in methods and their named variants have fixed styles. Other names choose theirs by a checksum of the name, so
    that they too look the same everywhere; only where two that are shown together choose the same does the one later in
    the alphabet take the next that is free.

    >>> alone, beside = method_styles(["clib"]), method_styles(["er", "mine", "clib"])
    >>> alone["clib"] == beside["clib"], beside["clib"].colour
    (True, '#0072B2')
    """
    rows = list(dict.fromkeys(rows))
    own = sorted({family_name(row) for row in rows} - FAMILIES.keys())
    families = dict(zip(FAMILIES, range(len(FAMILIES)), strict=True))
    slots = range(len(FAMILIES), len(FAMILIES) + OWN)
    families |= _choose(own, slots, OWN_COLOURS)
    styles: dict[str, MethodStyle] = {}
    for family in families:
        alike = [row for row in rows if family_name(row) == family]
        plain = FAMILIES.get(family, ())
        named = [family, f"{family}-released", *plain, *(f"{row}-released" for row in plain)]
        free = sorted(row for row in alike if row not in named)
        variants = {row: named.index(row) for row in alike if row in named}
        variants |= _choose(free, range(FIXED, VARIANTS), len(LINES), taken=[0, *variants.values()])
        styles |= {row: MethodStyle(families[family], variant) for row, variant in variants.items()}
    return {row: styles[row] for row in rows}


def family_name(row: str) -> str:
    """The method that a row is a variant of.

    >>> family_name("clib-balanced memory=200"), family_name("er-ace-released")
    ('clib', 'er-ace')
    """
    name = row.split()[0].removesuffix("-released") if row.split() else row
    return next((family for family, variants in FAMILIES.items() if name in variants), name)


def _choose(names: Sequence[str], slots: range, unlike: int, taken: Iterable[int] = ()) -> dict[str, int]:
    """A slot for each name: that of its checksum, or the next that differs from the others' modulo `unlike`.

    Where there is none, the next that is free; where there is none either, the checksum's.
    """
    chosen: dict[str, int] = {}
    for name in names:
        used = {*taken, *chosen.values()}
        wanted = zlib.crc32(name.encode("utf-8", "replace")) % len(slots)
        order = [*slots[wanted:], *slots[:wanted]]
        apart = [slot for slot in order if slot % unlike not in {one % unlike for one in used}]
        free = [slot for slot in order if slot not in used]
        chosen[name] = (apart or free or order)[0]
    return chosen
