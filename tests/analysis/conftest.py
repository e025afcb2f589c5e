"""The tiny study's runs and its table, for whoever looks at them."""

from __future__ import annotations

import pytest

from tests.studies.written import TINY, tabulated, write_tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    write_tiny(out)
    return out


@pytest.fixture(scope="module")
def table(runs):
    return tabulated(TINY, "cifar10", [runs], metrics=["a_auc"])
