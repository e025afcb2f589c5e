"""`iblurry dev`: what maintainers of the package do with finished runs."""

from iblurry.cli.verbs import Verbs

dev = Verbs(
    "dev",
    package=__name__,
    verbs={
        "collect": "Keep finished runs as a few small texts each.",
        "reproduction": "Compare collected runs with the paper's tables, on a page.",
    },
    help="For maintainers: results that are kept beside the code.",
)
