"""How a method looks: its colour, line and marker in figures and reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Okabe and Ito's palette without its yellow, which is faint on white; then colours of Tol's schemes that are far from
# it.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00"),
    *("#882255", "#999933", "#777777"),
    *("#332288", "#D01C8B", "#7A4419", "#7CAE00"),
    *("#3333DD", "#D6203C", "#A63AD6", "#0B4D1F", "#1B7F86", "#5C5470"),
)
LINES = (  # with the markers, they carry it in black and white
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


@dataclass(frozen=True)
class MethodStyle:
    """What tells a row of a table from the others, in colour and without.

    Parameters
    ----------
    family : int
        The method's place in FAMILIES; those that are not the package's are numbered on.
    variant : int
        0 for the method itself; variants have its colour and marker with another line, fill and hatch.
    """

    family: int
    variant: int

    @property
    def colour(self) -> str:
        """The family's; methods beyond the built-in share the colours that those leave."""
        own = self.family - len(FAMILIES)
        return COLOURS[self.family if own < 0 else len(FAMILIES) + own % (len(COLOURS) - len(FAMILIES))]

    @property
    def line(self) -> Any:
        return LINES[(self.family + self.variant) % len(LINES)]

    @property
    def marker(self) -> str:
        return MARKERS[self.family % len(MARKERS)]

    @property
    def fill(self) -> Any:
        return FILLS[(self.variant - 1) % len(FILLS)] if self.variant else "full"  # all pairs with a line occur

    @property
    def hatch(self) -> str:
        return HATCHES[(self.family + self.variant) % len(HATCHES)]


def method_styles(rows: Iterable[str]) -> dict[str, MethodStyle]:
    """The styles of rows that are shown together, such as "clib", "clib-released" or "clib admission=Balanced".

    Built-in methods and their named variants have fixed styles. Others take the next colour that is left, other
    variants the next line and fill, in the order they come.

    >>> alone, beside = method_styles(["clib"]), method_styles(["er", "mine", "clib"])
    >>> alone["clib"] == beside["clib"], beside["clib"].colour
    (True, '#0072B2')
    """
    rows = list(dict.fromkeys(rows))
    families = dict.fromkeys([*FAMILIES, *map(family_name, rows)])
    styles: dict[str, MethodStyle] = {}
    for number, family in enumerate(families):
        named = [family, f"{family}-released", *FAMILIES.get(family, ())]
        named += [f"{row}-released" for row in named[2:]]
        variants = dict.fromkeys([*named, *(row for row in rows if family_name(row) == family)])
        styles |= {row: MethodStyle(number, variant) for variant, row in enumerate(variants)}
    return {row: styles[row] for row in rows}


def family_name(row: str) -> str:
    """The method that a row is a variant of.

    >>> family_name("clib-balanced memory=200"), family_name("er-ace-released")
    ('clib', 'er-ace')
    """
    name = row.split()[0].removesuffix("-released") if row.split() else row
    return next((family for family, variants in FAMILIES.items() if name in variants), name)
