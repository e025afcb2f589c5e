"""Labels: one form for all texts that look the same, so that they are one class."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from iblurry.errors import InputError

# Control characters, ends of lines, halves of characters, and what Unicode calls ignorable: characters that show
# nothing or turn the direction of writing. These are the ones that the schema of a label names as well.
HIDDEN = (
    r"\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
)
_JOINERS = "\u200c\u200d"  # part of the spelling in some scripts, and of pictures made of several
_HIDDEN = re.compile(f"[{HIDDEN}{_JOINERS}\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")
_STYLES = re.compile(r"[\ufe00-\ufe0f]")  # how the character before is drawn, not which it is
_JOINED = ("Lo", "Mn", "Mc", "So", "Sk")  # categories of the characters that they may follow


def normalize_label(label: str) -> str:
    """The form under which a label is known; InputError names a character that cannot be seen.

    Unicode's form NFC, without spaces at its ends, with single ones inside, and without the selectors that choose
    between the plain and the coloured form of a character.

    >>> normalize_label(" cafe\u0301  au lait ")
    'café au lait'
    """
    text = unicodedata.normalize("NFC", _STYLES.sub("", label))
    for found in _HIDDEN.finditer(text):
        place, letter = found.start(), found[0]
        if letter in _JOINERS and place and unicodedata.category(text[place - 1]) in _JOINED:
            continue
        name = unicodedata.name(letter, "a control character").lower()
        raise InputError(
            f"has U+{ord(letter):04X} ({name}) at character {place + 1}, which cannot be seen; leave it out."
        )
    return " ".join(text.split())


def known_label(label: str) -> str:
    """Returns a label in its one form; InputError, which names it, where that has no letter or one that cannot be
    seen.
    """
    try:
        known = normalize_label(label)
    except InputError as error:
        raise InputError(f"The label {label!r} {error}") from error
    if not known:
        raise InputError(f"The label {label!r} has no visible character; give another label.")
    return known


def class_labels(names: Iterable[str]) -> tuple[str, ...]:
    """The names of classes in their one form; InputError where two look the same."""
    given: dict[str, str] = {}
    for name in names:
        if (known := known_label(name)) in given:
            raise InputError(f"The class names {given[known]!a} and {name!a} look the same; give different ones.")
        given[known] = name
    return tuple(given)


def printable(text: str) -> str:
    """Escapes characters that cannot be seen on a terminal, but for ends of lines."""
    return _HIDDEN.sub(lambda found: found[0] if found[0] == "\n" else ascii(found[0])[1:-1], text)
