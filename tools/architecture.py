"""Draws the rooms of the package and who imports whom: docs/architecture.svg. With --measure, prints what it measures.

python -m tools.architecture
python -m tools.architecture --measure
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "iblurry"
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, ROW, BOX = 720, 76, (120, 36)  # pixels: of the picture, of a row of rooms, of a room
Graph = dict[str, set[str]]  # who imports whom


def main() -> int:
    if "--measure" in sys.argv[1:]:
        for name, value in measures().items():
            print(f"{name:60} {value}")
        return 0
    PICTURE.write_text(picture())
    return 0


def imports() -> Graph:
    """Of every module of the package: the modules it imports anywhere, for annotations and inside functions, too."""
    names = {_module(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        name: {_known(used, names) for used in _imported(path)} & names.keys() - {name} for name, path in names.items()
    }


def rooms(graph: Graph) -> Graph:
    """The same of the folders of the package. Every one may use the modules at its root, which are left out."""
    found: Graph = {room.name: set() for room in PACKAGE.iterdir() if (room / "__init__.py").exists()}
    for name, used in graph.items():
        if (room := _room(name)) in found:
            found[room] |= ({_room(other) for other in used} & found.keys()) - {room}
    return found


def circles(graph: Graph) -> list[list[str]]:
    """Sets of nodes that reach each other."""
    reached = {node: _reached(graph, node) for node in graph}
    found = {
        frozenset({node} | {other for other in graph if other in reached[node] and node in reached[other]})
        for node in graph
    }
    return sorted(sorted(each) for each in found if len(each) > 1)


def reduced(graph: Graph) -> Graph:
    """Without the arrows that follow from others: A to C where A reaches C by B."""
    return {
        node: {other for other in used if not any(other in _reached(graph, third) for third in used - {other})}
        for node, used in graph.items()
    }


def picture() -> str:
    """The rooms as an SVG: each stands above all that it imports; arrows that follow from others are left out."""
    graph = rooms(imports())
    level: dict[str, int] = {}
    while len(level) < len(graph):
        ready = [room for room in sorted(graph) if room not in level and graph[room] <= level.keys()]
        assert ready, f"{circles(graph)} import each other"
        level |= {room: max((level[other] + 1 for other in graph[room]), default=0) for room in ready}
    rows = [[room for room in sorted(graph) if level[room] == at] for at in range(max(level.values()), -1, -1)]
    place = {
        room: (WIDTH * (x + 1) / (len(row) + 1), ROW * y + BOX[1])
        for y, row in enumerate(rows)
        for x, room in enumerate(row)
    }
    lines = [_arrow(place[room], place[other]) for room, used in reduced(graph).items() for other in sorted(used)]
    boxes = [_box(room, *place[room]) for room in sorted(graph)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {ROW * len(rows)}" role="img" '
            'font-family="sans-serif" font-size="15">',
            "<title>The rooms of iblurry; a room imports those to which its arrows lead</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0 8 4 0 8z" fill="#777"/></marker></defs>',
            *lines,
            *boxes,
            "</svg>\n",
        ]
    )


def measures() -> dict[str, object]:
    """Sizes of what is kept in git, and what the imports say."""
    graph = imports()
    return {
        "lines of Python in iblurry/": _lines("iblurry/*.py"),
        "lines of JavaScript": _lines("iblurry/*.js"),
        "lines of tests": _lines("tests/*.py"),
        "modules at the root, without __init__ and __main__": len([*PACKAGE.glob("[!_]*.py")]),
        "circles of imports between modules": len(circles(graph)),
        "circles of imports between rooms": len(circles(rooms(graph))),
        "arrows between rooms": sum(map(len, rooms(graph).values())),
    }


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to_x, to_y), half = start, end, BOX[1] / 2
    middle = (y + to_y) / 2
    curve = f"M{x:.0f} {y + half:.0f}C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {to_y - half:.0f}"
    return f'<path d="{curve}" fill="none" stroke="#777" marker-end="url(#head)"/>'


def _box(room: str, x: float, y: float) -> str:
    wide, high = BOX
    return (
        f'<rect x="{x - wide / 2:.0f}" y="{y - high / 2:.0f}" width="{wide}" height="{high}" rx="5" fill="#eef2f8" '
        f'stroke="#446"/><text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" fill="#223">{room}/</text>'
    )


def _reached(graph: Graph, node: str) -> set[str]:
    found, ahead = set(), [node]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _known(name: str, names: Iterable[str]) -> str:
    """The module of a name: itself, or what it is taken from."""
    return name if name in names else name.rpartition(".")[0]


@cache
def _imported(path: Path) -> frozenset[str]:
    return frozenset(_names(ast.parse(path.read_text())))


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _lines(pattern: str) -> int:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sum(len((ROOT / name).read_text().splitlines()) for name in listed.split())


if __name__ == "__main__":
    raise SystemExit(main())
