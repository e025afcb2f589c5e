"""Networks: bodies of several sizes and a head whose rows open as classes arrive."""
