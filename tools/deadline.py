"""A plugin of pytest: so many seconds ($IBLURRY_CHECK_SECONDS) after its first test a worker skips the others."""

from __future__ import annotations

import os
import time
from functools import cache

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.monotonic() - _started() > float(os.environ["IBLURRY_CHECK_SECONDS"]):
        pytest.skip("out of time: `make test` runs it")


@cache
def _started() -> float:
    return time.monotonic()
