"""`iblurry live`: a service that learns, and what is sent to it, asked of it and kept of it."""

from iblurry.cli.verbs import Verbs

live = Verbs(
    "live",
    package=__name__,
    verbs={
        "serve": "Start a service: learns what it is sent, answers meanwhile.",
        "send": "Teach it: pictures in folders, or a data set.",
        "ask": "Ask it what pictures show.",
        "correct": "Correct it: remove or relabel, rename or merge.",
        "backup": "Write it to one file, while it runs.",
        "restore": "Make its folder from such a file.",
    },
    files={"restore": "backup"},
    help="A live service, which learns labelled images and answers queries.",
)
