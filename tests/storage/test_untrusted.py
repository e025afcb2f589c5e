"""JSON and numbers of others: what is refused, and that it takes no time."""

from fractions import Fraction

import pytest

from iblurry.errors import DataError, InputError
from iblurry.storage.untrusted import MOST_BYTES, exact, parse_json, read_json

DEEP = 200_000
REFUSED = {
    "nested lists": (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", "nested"),
    "nested objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "nested"),
    "nested, less deep than Python's own limit": (b'{"a":' + b"[" * 101 + b"]" * 101 + b"}", "nested"),
    "nested, not closed": (b'{"a":' + b"[" * DEEP, "nested"),
    "a key twice": (b'{"a": {"b": 1, "b": 2}}', "'b' is given twice"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "Infinity": (b'{"a": [-Infinity]}', "Infinity"),
    "infinite by its exponent": (b'{"a": 1e999}', "1e999"),
    "a number of 5,000 digits": (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
    "not UTF-8": (b'{"a": "\xff"}', "utf-8"),
    "another type": (b"[1]", "not an object"),
    "null": (b"null", "not an object"),
    "nothing": (b"", "valid JSON"),
    "more behind it": (b"{} {}", "Extra data"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_hostile_json_is_refused_in_one_line(tmp_path, case):
    data, reason = REFUSED[case]
    with pytest.raises(InputError, match=reason) as parsed:
        parse_json(data)
    path = tmp_path / "about.json"
    path.write_bytes(data)
    with pytest.raises(DataError, match=reason) as read:
        read_json(path)
    assert "\n" not in str(parsed.value)
    assert str(read.value).startswith(f"{path} is damaged")
    assert len(str(read.value)) < 500


def test_honest_json_is_read(tmp_path):
    assert parse_json('{"ä": [1, -2.5e3, null, true, "x"], "b": {}}'.encode()) == {
        "ä": [1, -2500.0, None, True, "x"],
        "b": {},
    }
    assert parse_json(b"\xef\xbb\xbf[340282366920938463463374607431768211455]", list) == [2**128 - 1]
    assert parse_json(b'{"a":' + b"[" * 99 + b"]" * 99 + b"}")
    with pytest.raises(DataError, match="cannot be read"):
        read_json(tmp_path)


def test_a_large_file_is_not_read_whole(tmp_path):
    path = tmp_path / "about.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES * 1000)
    with pytest.raises(DataError, match="more than"):
        read_json(path)


LONG = ["1e999999999", "1e-999999999", "1E+9_9_9_9_9_9", "9" * 5000, "1/" + "9" * 65, 10**5000]


@pytest.mark.parametrize("value", [*LONG, "1/0", "nan", None, "", []], ids=range(11))
def test_a_fraction_that_would_hang_is_refused(value):
    with pytest.raises(InputError, match="is not a number or fraction") as refused:
        exact(value)
    assert len(str(refused.value)) < 200


def test_a_fraction_is_what_a_person_means():
    assert [exact(0.1), exact("1/16"), exact(3), exact(Fraction(1, 3)), exact(1e-250)] == [
        Fraction(1, 10),
        Fraction(1, 16),
        Fraction(3),
        Fraction(1, 3),
        Fraction(1, 10**250),
    ]
