"""A camera loop against the live service: look at a frame, ask what it is, and teach the service where it was wrong.

Frames are picture files, as a camera's driver or ffmpeg leaves them; here they are digits, saved first. The script
starts a service of its own on a free port and stops it in the end. Needs `pip install 'iblurry[live]'`.

    python examples/camera_loop.py
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from iblurry import Client, load

FRAMES = 120


@contextmanager
def service(folder: str) -> Iterator[str]:
    """A service that learns 1x8x8 images; its address."""
    words = ["live", "serve", "--data-dir", folder, "--image", "1x8x8", "--network", "mlp", "--port", "0", "--json"]
    with subprocess.Popen([sys.executable, "-m", "iblurry", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGINT)  # it saves and stops; the same folder goes on later
            process.wait()


def record(folder: Path) -> list[tuple[Path, str]]:
    """Frames with what a person would say they show."""
    digits = load("digits")
    folder.mkdir(exist_ok=True)
    frames = []
    for number in range(FRAMES):
        path = folder / f"{number:04}.png"
        Image.fromarray(digits.train.images[number][0]).save(path)
        frames.append((path, digits.classes[digits.train.labels[number]]))
    return frames


def main() -> None:
    frames = record(Path("frames"))
    with service("live") as url, Client(url) as client:
        right, taught, known = 0, 0, set()
        for number, (frame, truth) in enumerate(frames, start=1):
            answer = client.predict(frame)[0] if known else None  # it has no answer before its first class
            if answer is not None and answer.label == truth:
                right += 1
            else:  # a person corrects it
                client.wait(client.learn(frame, truth).last)
                known.add(truth)
                taught += 1
            if number % 40 == 0:
                print(f"{number} frames: {right} right, {taught} taught, {len(known)} classes")
        print("classes:", ", ".join(sorted(known)))


if __name__ == "__main__":
    main()
