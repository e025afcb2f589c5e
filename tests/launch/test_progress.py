"""What `run` shows on the way: a bar where somebody looks, unless told."""

from __future__ import annotations

import io
import warnings

import pytest
from rich.console import Console

from iblurry import Callback, Experiment, run

SMALL = Experiment.of("er", "digits", memory=40, samples=60)


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("progress, is_shown", [(None, None), (True, True), (False, False)])
def test_a_bar_where_somebody_looks(tmp_path, monkeypatch, capsys, is_terminal, progress, is_shown):
    screen, followed = io.StringIO(), []

    class Follow(Callback):
        def on_progress(self, position, accuracy, lr):
            followed.append(position)

    console = Console(file=screen, force_terminal=is_terminal, width=80, highlight=False)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    run(SMALL, tmp_path, progress=progress, callback=Follow())
    text = screen.getvalue() + capsys.readouterr().err
    assert ("er seed 1: " in text) == (is_terminal if is_shown is None else is_shown)
    assert ("━" in screen.getvalue()) == (is_terminal and progress is not False)
    assert followed[-1] == 60


def test_a_notebook_without_widgets_gets_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("iblurry.launch.progress.find_spec", lambda name: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # rich says so of widgets that are missing
        run(SMALL, tmp_path)
    assert "er seed 1: " in capsys.readouterr().err
