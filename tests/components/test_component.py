"""Code of one's own is known by a hash that changes with everything it does, and with nothing else."""

from __future__ import annotations

import importlib
import json
import sys
import textwrap

import pytest

from iblurry.components.code_hash import code_hash, hashed_name
from iblurry.errors import InputError, UnknownNameError
from iblurry.parts import Admission, Rehearsal, Reservoir

HELPERS = """
    WIDTH = 3
    TABLE = {"a": [1, 2]}

    def helper(x):
        return x + WIDTH

    def unused(x):
        return x - 1
"""
MINE = """
    import os
    import helpers
    from helpers import TABLE
    from iblurry.parts import Admission

    SIGN = 1

    class Base(Admission):
        def choose_row(self, sample):
            return SIGN * helpers.helper(self.twice(sample))

        def twice(self, sample):
            return [2 * x for x in TABLE["a"]]

    class Oldest(Base):
        patience: int = 3  # samples

    def main():
        print("not part of Oldest")
"""


@pytest.fixture
def hash_of(tmp_path, monkeypatch):
    """The hash of Oldest, freshly imported, with some text of the two files replaced."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def get(old="", new=""):
        for name in ("mine", "helpers"):
            sys.modules.pop(name, None)
        for name, text in (("helpers", HELPERS), ("mine", MINE)):
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text.replace(old, new) if old else text))
        importlib.invalidate_caches()
        return code_hash(importlib.import_module("mine").Oldest)

    return get


CHANGES = {
    "patience: int = 3": "patience: int = 4",
    "SIGN *": "2 * SIGN *",
    "SIGN = 1": "SIGN = -1",
    "WIDTH = 3": "WIDTH = 4",
    "return x + WIDTH": "return x - WIDTH",
    '{"a": [1, 2]}': '{"a": [1, 3]}',
    "2 * x": "3 * x",
}
OTHER_CHANGES = {
    "not part of": "nothing of",
    "return x - 1": "return x - 2",
    "import os": "import os\n    import sys",
    "def main": "# a comment\n\n    def main",
}


@pytest.mark.parametrize("old", [*CHANGES, *OTHER_CHANGES])
def test_whatever_it_computes_with_changes_the_hash_and_nothing_else(hash_of, old):
    assert (hash_of(old, (CHANGES | OTHER_CHANGES)[old]) != hash_of()) == (old in CHANGES)


def test_a_file_edited_after_its_import_does_not_stand_for_the_running_code(hash_of, tmp_path):
    before = hash_of()
    running = sys.modules["mine"].Oldest
    (tmp_path / "mine.py").write_text(textwrap.dedent(MINE.replace("SIGN *", "2 * SIGN *")))
    edited = code_hash(running)
    assert edited not in (before, hash_of("SIGN *", "2 * SIGN *"))


def test_functions_closures_and_lambdas_have_hashes():
    def make(n):
        return lambda x: x + n

    assert code_hash(make(1)) != code_hash(make(2))
    assert code_hash(make(1)) == code_hash(make(1))
    assert code_hash(lambda x: x + 1) != code_hash(lambda x: x + 2)


def test_names_of_the_packages_own_have_no_hash():
    assert hashed_name(Reservoir) == "Reservoir"
    assert Reservoir().to_json() == {"Reservoir": {}}


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(InputError, match="'Reservoir'"):

        class Reservoir(Admission):
            def choose_row(self, sample): ...

    class Mine(Admission):
        def choose_row(self, sample): ...

    def elsewhere():
        class Mine(Admission):
            def choose_row(self, sample): ...

    with pytest.raises(InputError, match="'Mine'"):
        elsewhere()
    assert Admission.known()["Mine"] is Mine
    assert Admission.known()["Reservoir"] is not None


def test_a_class_that_is_executed_again_replaces_itself():
    def cell():
        class Again(Admission):
            def choose_row(self, sample): ...

        return Again

    cell()
    second = cell()
    assert Admission.named("Again") is second


def test_code_that_is_not_here_can_be_read_and_compared_but_not_run(make_context):
    gone = Admission.from_json({"Gone@0123456789ab": {"step": 2, "ends": [1, 2]}})
    assert gone == Admission.from_json(gone.to_json())
    assert gone != Admission.from_json({"Gone@0123456789ab": {"step": 3, "ends": [1, 2]}})
    assert gone != Admission.from_json({"Gone@ba9876543210": {"step": 2, "ends": [1, 2]}})
    assert (gone.is_missing, gone.step, gone.ends, hash(gone)) == (True, 2, (1, 2), hash(gone))
    for use in (lambda: gone.attach(make_context(4)), lambda: gone.choose_row(None)):
        with pytest.raises(InputError, match="Gone@0123456789ab"):
            use()
    with pytest.raises(UnknownNameError, match="'Gone'"):
        Admission.from_json({"Gone": {}})


def test_another_version_of_the_code_is_not_taken_for_it():
    class Mine(Rehearsal):
        def choose(self, stream, drawn): ...

    assert Rehearsal.from_json(Mine().to_json()) == Mine()
    other = Rehearsal.from_json({f"Mine@{'0' * 12}": {}})
    assert other.is_missing
    assert other != Mine()


def test_tuples_come_back_from_json_as_tuples():
    class Steps(Admission):
        at: tuple[tuple[int, ...], ...] = ((1, 2), (3,))

        def choose_row(self, sample): ...

    read = Admission.from_json(json.loads(json.dumps(Steps().to_json())))
    assert read == Steps()
    assert hash(read) == hash(Steps())
    assert Steps(at=[[1, 2], [3]]) == Steps()
