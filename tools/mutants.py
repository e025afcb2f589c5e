"""`make mutants`: changes one operator, number or branch at a time and counts how many such changes the tests notice.

    python -m tools.mutants --number 300 --seed 1
    python -m tools.mutants --only parts/terms/teacher.py --number 20

The changes are mutmut's, of function bodies and of class-level defaults alike; annotations, assertions, error messages
and figures stay as they are. Everything happens in a copy of the checkout. At first the tests run once to see which
lines each of them executes (a changed source repeats that, a changed test file only its own part). A mutant is then
tried on the tests that execute its line, those of its own room and the quick ones first, in a fork of a process that
has imported torch already. It is killed when a test fails or needs ten times its time. Verdicts are kept: the same
command goes on where it was stopped, and after new tests it tries the survivors again. The changes of one line are
seen with --only and --show.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import libcst as cst
import pytest
from coverage import Coverage
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

ROOT = Path(__file__).parent.parent
PATHS = (  # folders and files of iblurry/ whose formulas and defaults the tests must hold
    "parts", "streams", "methods", "experiment/metrics.py",
)  # fmt: skip
TESTS = (  # the closest to a formula first; doctests of PATHS are added
    "tests/parts", "tests/streams", "tests/methods",
    "tests/test_published_defaults.py", "tests/learner",
    "tests/laws", "tests/engine",
    "tests/experiment",
)  # fmt: skip
OPERATORS = (
    mutators.operator_number, mutators.operator_name, mutators.operator_if_exp, mutators.operator_remove_unary_ops,
    mutators.operator_keywords, mutators.operator_swap_op, mutators.operator_augmented_assignment,
)  # fmt: skip
UNTOUCHED = (cst.Annotation, cst.Assert, cst.Raise, cst.FormattedString, cst.Import, cst.ImportFrom)
WORK = ROOT / "build" / "mutants"  # the copies, which test executes which line, and the verdicts


def main(arguments: list[str] | None = None) -> int:
    """Draw, try and tell; 0 whatever survives."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=100, help="mutants to draw.  [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the draw.  [default: %(default)s]")
    parser.add_argument("--only", nargs="+", default=PATHS, metavar="PATH", help="folders and files of iblurry/")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time.  [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for each mutant.  [default: %(default)s]")
    parser.add_argument("--show", action="store_true", help="list the drawn mutants and stop")
    given = parser.parse_args(arguments)
    mutants = [mutant for path in sources(given.only) for mutant in mutants_of(path)]
    drawn = random.Random(given.seed).sample(mutants, min(given.number, len(mutants)))
    if given.show:
        print(*(f"{mutant.place}  {mutant.change}" for mutant in drawn), sep="\n")
        return 0
    bench = Bench(given.jobs)
    print(f"{len(drawn)} of {len(mutants)} mutants, seed {given.seed}:", flush=True)
    pool = ThreadPoolExecutor(given.jobs)
    try:
        verdicts = list(pool.map(lambda mutant: bench.judge(mutant, given.seconds), drawn))
    except KeyboardInterrupt:
        pool.shutdown(cancel_futures=True)  # after the mutants under way
        raise
    print(f"killed {sum(verdicts)} of {len(verdicts)}")
    for path, (killed, number) in _by_file(drawn, verdicts).items():
        print(f"  {path}: {killed} of {number}")
    return 0


@dataclass(eq=False)
class Mutant:
    """A source file with one change."""

    path: str  # in the checkout
    line: int
    module: cst.Module = field(repr=False)
    before: cst.CSTNode = field(repr=False)
    after: cst.CSTNode = field(repr=False)

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def change(self) -> str:
        return f"{_code(self.module, self.before)}  ->  {_code(self.module, self.after)}"

    @cached_property
    def text(self) -> str:
        """The whole changed file."""
        changed = self.module.deep_replace(self.before, self.after)
        assert isinstance(changed, cst.Module)
        return changed.code

    @property
    def key(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def sources(paths: tuple[str, ...] | list[str]) -> list[str]:
    """The files of iblurry/ at these paths."""
    for path in paths:
        if not (ROOT / "iblurry" / path).exists():
            raise SystemExit(f"There is no iblurry/{path}; PATHS in tools/mutants.py are {', '.join(PATHS)}.")
    return sorted({str(file.relative_to(ROOT)) for path in paths for file in _python_files(ROOT / "iblurry" / path)})


def mutants_of(path: str) -> Iterator[Mutant]:
    """All one-operator changes of a file, from its top to its end."""
    source = (ROOT / path).read_text("utf-8")
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    positions, module = wrapper.resolve(PositionProvider), wrapper.module
    for node in _nodes(module):
        for kind, operator in mutators.mutation_operators:
            if isinstance(node, kind) and operator in OPERATORS and node in positions:
                line = positions[node].start.line
                yield from (Mutant(path, line, module, node, other) for other in operator(node))


def _nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    if not isinstance(node, UNTOUCHED):
        yield node
        for child in node.children:
            yield from _nodes(child)


def _code(module: cst.Module, node: cst.CSTNode) -> str:
    text = " ".join(module.code_for_node(node).split())
    return text if len(text) <= 70 else f"{text[:45]} ... {text[-20:]}"


def _by_file(drawn: list[Mutant], verdicts: list[bool]) -> dict[str, tuple[int, int]]:
    number = Counter(mutant.path for mutant in drawn)
    killed = Counter(mutant.path for mutant, dead in zip(drawn, verdicts, strict=True) if dead)
    return {path: (killed[path], number[path]) for path in sorted(number)}


class Bench:
    """Copies of the checkout, the tests that execute each line, and a process that has imported torch."""

    def __init__(self, jobs: int) -> None:
        for name in ("torch", "scipy.special", "PIL.Image", "torch._dynamo"):
            __import__(name)
        assert "iblurry" not in sys.modules, "a fork imports the package itself, with the mutant"
        copies = [WORK / f"copy{number}" for number in range(jobs)]
        for copy in copies:
            _copy(copy)
        self.copies: SimpleQueue[Path] = SimpleQueue()
        self.executed = _executed_lines(copies[0])
        for copy in copies:
            self.copies.put(copy)
        self.tests_hash = _hash(path for folder in TESTS for path in _python_files(ROOT / folder))
        self.verdicts: dict[str, Any] = {}
        if (WORK / "verdicts.jsonl").exists():
            for line in (WORK / "verdicts.jsonl").read_text().splitlines():
                self.verdicts |= json.loads(line)

    def judge(self, mutant: Mutant, seconds: float) -> bool:
        """Whether a test kills it."""
        known = self.verdicts.get(mutant.key)
        if known is None or (not known["by"] and known["tests"] != self.tests_hash):
            copy = self.copies.get()
            try:
                known = {"by": self._try(mutant, copy, seconds), "tests": self.tests_hash}
            finally:
                self.copies.put(copy)
            with (WORK / "verdicts.jsonl").open("a") as file:
                file.write(json.dumps({mutant.key: known}) + "\n")
        print(f"{'killed  ' if known['by'] else 'SURVIVED'} {mutant.place}  {mutant.change}  {known['by']}", flush=True)
        return bool(known["by"])

    def _try(self, mutant: Mutant, copy: Path, seconds: float) -> str:
        """What killed it; nothing where it lives."""
        file = copy / mutant.path
        original = file.read_text("utf-8")
        file.write_text(mutant.text, "utf-8")
        try:
            for tests, expected in self._batches(mutant, seconds):
                ended = _fork(lambda tests=tests: _pytest(["-x", *tests]), copy, 30 + 10 * expected)
                if ended:
                    return f"{tests[0]}{f' ... {tests[-1]}' if len(tests) > 1 else ''}"
        finally:
            file.write_text(original, "utf-8")
        return ""

    def _batches(self, mutant: Mutant, seconds: float) -> Iterator[tuple[list[str], float]]:
        """The tests that execute its line and their time: a few quick ones, more, and the rest."""
        lines = _lines_executed_with(mutant.path, mutant.line)
        near, owner = Path(mutant.path).parts[1:], _class_with_default(mutant.path, mutant.line)
        found = []
        for test, (taken, executed) in self.executed.items():
            names_owner = bool(owner) and owner in _text(test.split("::")[0])  # making one executes no line of its file
            if names_owner or not lines.isdisjoint(executed.get(mutant.path, ())):
                is_near = names_owner or any(f"tests/{part.removesuffix('.py')}" in test for part in near)
                found.append((not is_near, taken, test))
        found.sort()
        spent, batch, limits = 0.0, [], [2.0, 10.0, seconds]
        for _, taken, test in found:
            if spent + taken > limits[0] and batch:
                yield batch, spent
                batch, limits = [], limits[1:]
                if not limits:
                    return
            spent += taken
            batch.append(test)
        if batch:
            yield batch, spent


@cache
def _lines_executed_with(path: str, line: int) -> frozenset[int]:
    """The lines of the statement; of a class's or a module's own, which an import executes, all lines of the file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    inside = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.Lambda) and node.lineno <= line <= (node.end_lineno or 0)
        and (isinstance(node, ast.Lambda) or node.body[0].lineno <= line)
    ]  # fmt: skip
    if not inside:
        return frozenset(range(1, 10_000))
    smallest = [
        node for node in ast.walk(inside[-1])
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]  # fmt: skip
    if not smallest:  # a lambda of one line
        return frozenset([line])
    statement = smallest[-1]
    last = statement.end_lineno if not getattr(statement, "body", None) else max(line, statement.lineno)
    return frozenset(range(statement.lineno, (last or line) + 1))


@cache
def _class_with_default(path: str, line: int) -> str:
    """The class whose own statement, such as a field with its default, this line is; "" for one in a function."""
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for own in node.body:
                if not isinstance(own, ast.FunctionDef) and own.lineno <= line <= (own.end_lineno or 0):
                    return node.name
    return ""


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text("utf-8")


def _executed_lines(copy: Path) -> dict[str, tuple[float, dict[str, set[int]]]]:
    """By test its seconds and the lines of each file that it executes."""
    kept, source = WORK / "executed.json", _hash(_python_files(ROOT / "iblurry"))
    known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if known.get("source") != source:
        known = {"source": source, "files": {}}
    files = [str(file.relative_to(ROOT)) for folder in TESTS for file in _python_files(ROOT / folder)]
    files = [file for file in files if Path(file).name.startswith("test_")]
    files += [file for file in sources(PATHS) if ">>> " in (ROOT / file).read_text("utf-8")]
    for at, file in enumerate(files):
        state = _hash([ROOT / file, *(ROOT / "tests").glob("conftest.py")])
        if known["files"].get(file, {}).get("state") != state:
            print(f"lines executed by {file} ({at + 1} of {len(files)})", flush=True)
            result = WORK / "one.json"
            result.unlink(missing_ok=True)
            ended = _fork(lambda file=file, result=result: _record(file, result), copy, 1800)
            if not result.exists():
                raise SystemExit(f"{file} ended with {ended} without its results; {copy}.log tells why.")
            known["files"][file] = {"state": state, "tests": json.loads(result.read_text())}
            kept.write_text(json.dumps(known))
    return {
        test: (taken, {path: set(lines) for path, lines in executed.items()})
        for file in files
        for test, (taken, executed) in known["files"][file]["tests"].items()
    }


def _record(file: str, result: Path) -> int:
    """Runs a file's tests, in a fork, and writes which lines each that passes executes."""
    measured = Coverage(data_file=None, source_pkgs=["iblurry"], config_file=False)
    watch = _Watch(measured)
    measured.start()
    ended = _pytest([file, "-m", "not slow"], [watch])
    measured.stop()
    data, here = measured.get_data(), Path.cwd()
    executed: dict[str, dict[str, set[int]]] = {}
    for path in data.measured_files():
        for line, contexts in data.contexts_by_lineno(path).items():
            for context in contexts:
                executed.setdefault(context, {}).setdefault(str(Path(path).relative_to(here)), set()).add(line)
    shared = executed.get(file, {})  # by fixtures of the file
    found = {
        test: (taken, {p: sorted(executed.get(test, {}).get(p, set()) | shared.get(p, set()))
                       for p in {*executed.get(test, {}), *shared}})
        for test, taken in watch.passed.items()
    }  # fmt: skip
    result.write_text(json.dumps(found))
    return ended


class _Watch:
    """Tells coverage which test runs, and keeps the seconds of those that pass."""

    def __init__(self, measured: Coverage) -> None:
        self.measured = measured
        self.passed: dict[str, float] = {}
        self.current = ""

    def pytest_runtest_protocol(self, item: Any) -> None:
        self.current = item.nodeid
        self.measured.switch_context(item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope != "function":  # other tests of the file use it without executing its lines
            self.measured.switch_context(self.current.split("::")[0])
        made = yield
        self.measured.switch_context(self.current)
        return made

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" and report.passed:
            self.passed[report.nodeid] = report.duration


def _pytest(arguments: list[str], plugins: list[Any] | None = None) -> int:
    return int(pytest.main(["-n", "0", "-p", "no:cacheprovider", "--no-header", *arguments], plugins))


def _fork(work: Callable[[], int], copy: Path, seconds: float) -> int:
    """What `work` returns in a fork that stands in the copy; killed after so many seconds of the processor."""
    child = os.fork()
    if not child:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            printed = os.open(copy.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            os.setsid()
            os.chdir(copy)
            os.environ |= {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
            sys.dont_write_bytecode = True
            sys.path[:] = [str(copy), *(place for place in sys.path if Path(place or ".").resolve() != ROOT)]
            os._exit(work())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(99)
    until = time.monotonic() + 10 * seconds  # one that waits uses no processor
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)


def _copy(copy: Path) -> None:
    """Brings a copy of the checkout up to date, with uncommitted changes."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, stdout=-1)
    names = {name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        place = copy / name
        if not place.exists() or place.read_bytes() != (ROOT / name).read_bytes():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place)
    for place in [place for place in copy.rglob("*.py") if str(place.relative_to(copy)) not in names]:
        place.unlink()
    subprocess.run([sys.executable, "-m", "compileall", "-q", "iblurry"], cwd=copy, check=True)


def _python_files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _hash(paths: Any) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
