"""What the bytes around a picture say, read without trusting them and without Pillow.

Pillow reads the EXIF data of a JPEG when it opens it. A file of 64 kB made 5,000 lines of warnings with Pillow 13, and
with versions before it copies of the file for each of the 5,000 entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

SCANS = 100  # of a JPEG; each is a pass over all its pixels, a camera writes ten at most
ORIENTATION = 0x0112
TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}  # an EXIF orientation -> the PIL.Image.Transpose that undoes it
JPEG = b"\xff\xd8\xff"
KEPT = {0xE0, 0xEE}  # JFIF, and Adobe's word on the colours
ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
SCAN = 0xDA


def without_metadata(raw: bytes) -> bytes:
    """A JPEG without the segments that say nothing about its pixels; anything else as it is."""
    if not raw.startswith(JPEG):
        return raw
    kept, end = [raw[:2]], 2
    for kind, start, end in _segments(raw):
        if kind in KEPT or not (0xE0 <= kind <= 0xEF or kind == 0xFE):
            kept.append(raw[start:end])
    return b"".join([*kept, raw[end:]])


def orientation(raw: bytes, exif: bytes | None) -> int | None:
    """The transposition that turns the picture upright; `exif` is what Pillow found in a PNG or a WebP."""
    if raw.startswith(JPEG):
        found = (raw[start + 4 : end] for kind, start, end in _segments(raw) if kind == 0xE1)
        exif = next((data for data in found if data.startswith(b"Exif\0\0")), None)
    return TURNS.get(_orientation(exif.removeprefix(b"Exif\0\0"))) if exif else None


def scans(raw: bytes) -> int:
    """How many scans a JPEG has at most; 0 for anything else."""
    return raw.count(b"\xff\xda") if raw.startswith(JPEG) else 0


def webp_size(raw: bytes) -> tuple[int, int] | None:
    """Width and height of a WebP, None for anything else."""
    if raw[:4] != b"RIFF" or raw[8:12] != b"WEBP" or len(raw) < 30:
        return None
    if raw[12:16] == b"VP8X":
        return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
    if raw[12:16] == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(raw[26:28], "little") & 0x3FFF, int.from_bytes(raw[28:30], "little") & 0x3FFF


def _segments(raw: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, start and end of each segment before a JPEG's first scan."""
    start = 2
    while start + 4 <= len(raw) and raw[start] == 0xFF:
        kind = raw[start + 1]
        if kind == SCAN:
            return
        if kind == 0xFF:  # a fill byte
            start += 1
            continue
        end = start + 2 if kind in ALONE else start + 2 + int.from_bytes(raw[start + 2 : start + 4], "big")
        yield kind, start, min(end, len(raw))
        start = end


def _orientation(tiff: bytes) -> int:
    """The tag in the first directory of EXIF data, 0 if there is none."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None or len(tiff) < 8:
        return 0
    (at,) = struct.unpack_from(f"{order}I", tiff, 4)
    if at + 2 > len(tiff):
        return 0
    (count,) = struct.unpack_from(f"{order}H", tiff, at)
    for entry in range(at + 2, min(at + 2 + 12 * count, len(tiff) - 11), 12):
        tag, kind, number, value = struct.unpack_from(f"{order}HHIH", tiff, entry)
        if tag == ORIENTATION and kind == 3 and number == 1:
            return int(value)
    return 0
