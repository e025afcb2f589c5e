"""Networks: bodies of several sizes and a head whose rows open as classes arrive."""

from contextvars import ContextVar

# The logit of a closed row: its exp is 0 beside any open row, and unlike -inf it survives a product with 0.
FLOOR = -1e4
EXPORTING: ContextVar[bool] = ContextVar("exporting", default=False)  # answers are traced: no chunks, no counting
