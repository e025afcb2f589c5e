"""The tiny study's runs and its table, as the tests of analysis have them."""

from tests.analysis.conftest import runs, table

__all__ = ["runs", "table"]
