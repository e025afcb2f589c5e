"""A service that only talks like one: the page's HTTP on loopback, with a state that a test scripts."""

from __future__ import annotations

import base64
import io
import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np
from PIL import Image

from iblurry.errors import UnknownNameError
from iblurry.live import page
from tests.live.toy import STATUS


class FakeService:
    """Counts what it is taught; `refusals` are answered first, in their order, to what they are meant for."""

    def __init__(self, token=None):
        self.token = token
        self.seen = {}  # label -> samples
        self.keys = []  # of every request to learn, refused ones too
        self.known_keys = {}  # key -> first sample
        self.refusals = []  # (path, status, code, sentence, retry_after)
        self.silences = 0  # requests to learn that are obeyed and not answered
        self.asked = []  # paths, in order
        self.questions = 0  # answered
        self.labelled = []  # (id, label), as they came
        self.relabelled = []  # (sample, label)
        self.questions_gone = False  # their pictures are not kept any more
        self.points = []
        self.held_out_accuracy = None
        self.threshold = None  # below which answers are unknown
        self.confused = []  # (label, answer, count)
        self.changes = {}  # of the status
        self.has_pictures = True  # in the memory: not where features are stored
        self.listeners = []
        self.port = 0
        self.server = None

    @property
    def learnt(self):
        return sum(self.seen.values())

    def start(self):
        """Also again, on the same port."""
        self.server = _Server(("127.0.0.1", self.port), _Handler)
        self.server.service = self
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def stop(self):
        self.server.shutdown()
        for listener in list(self.listeners):
            listener.put(None)
        self.server.server_close()  # waits for the threads that answer
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def learn(self, label, count=1):
        """Samples of a class; listeners are told."""
        new = label not in self.seen
        self.seen[label] = self.seen.get(label, 0) + count
        if new:
            self.tell("class", {"label": label})
        self.tell("status", self.status())

    def point(self, at, accuracy, recent, rate=3e-4):
        self.points.append(
            {
                "at": at,
                "accuracy": accuracy,
                "recent_accuracy": recent,
                "learning_rate": rate,
                "classes": len(self.seen),
                "time": 1_790_000_000.0 + at,
                "tested": at,
                "right": round(at * accuracy),
                "held_out_accuracy": self.held_out_accuracy,
            }
        )
        self.tell("point", self.points[-1])

    def tell(self, name, data):
        for listener in list(self.listeners):
            listener.put((name, data))

    def status(self):
        last = self.points[-1] if self.points else {"accuracy": None, "recent_accuracy": None, "learning_rate": 3e-4}
        names = ("accepted", "learnt", "model", "updates", "operations", "applied", "model_operation")
        counts = dict.fromkeys(names, self.learnt)
        state = {
            "sentence": "Everything accepted is learnt." if self.learnt else "Nothing to learn yet.",
            "classes": len(self.seen),
            "tested": max(0, self.learnt - len(self.seen)),
            "drift": 0.12 if self.learnt else None,
            "held": min(500, self.learnt),
            "checkpoint_age_seconds": 3.2 if self.learnt else None,
            "disk_bytes": 12_345_678,
            "samples_per_second": 118.4,
            "uptime_seconds": 312.0,
        }
        measured = {key: last[key] for key in ("learning_rate", "accuracy", "recent_accuracy")}
        return STATUS | counts | state | measured | self.changes

    def classes(self):
        total = max(1, self.learnt)
        return [
            {
                "label": label,
                "first": 1 + sum([*self.seen.values()][:i]),
                "seen": seen,
                "held": min(seen, 50),
                "tested": seen - 1,
                "right": seen // 2,
                "accuracy": (seen // 2) / (seen - 1) if seen > 1 else None,
                "recent_accuracy": min(1.0, (0.4 + 0.07 * i) % 1.0) if seen > 1 else None,
                "recent_share": seen / total,
                "before_share": 1 / len(self.seen),
            }
            for i, (label, seen) in enumerate(self.seen.items())
        ]

    def confusion(self):
        counts = [{"label": label, "answer": answer, "count": count} for label, answer, count in self.confused]
        return {"window": 1000, "counts": counts}

    def memory(self, each):
        groups = []
        for i, (label, seen) in enumerate(self.seen.items()):
            items = [
                {
                    "row": 50 * i + j,
                    "importance": 0.3 * 0.9**j / (1 + i),
                    "since": 7 * j + i,
                    "thumbnail": thumbnail(i, j) if self.has_pictures else None,
                }
                for j in range(min(seen, 50, each))
            ]
            groups.append({"label": label, "count": min(seen, 50), "items": items})
        return {"capacity": 500, "size": sum(group["count"] for group in groups), "classes": groups}

    def accept(self, label, key):
        """The answer to a request to learn."""
        if key in self.known_keys:
            first = self.known_keys[key]
            return {"accepted": 1, "first": first, "last": first, "repeated": True}
        self.known_keys[key] = first = self.learnt + 1
        self.learn(label)
        return {"accepted": 1, "first": first, "last": first, "repeated": False}

    def guess(self, top):
        labels = list(self.seen)[:top]
        shares = [0.72, 0.19, 0.06, 0.02, 0.01]
        best = [{"label": label, "probability": p} for label, p in zip(labels, shares, strict=False)]
        self.questions += 1
        unknown = self.threshold is not None and best[0]["probability"] < self.threshold
        answer = {"id": f"f-{self.questions}", **best[0], "unknown": unknown, "top": best}
        return {"model": self.learnt, "threshold": self.threshold, "answers": [answer]}


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # stopping waits for them
    allow_reuse_address = True


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        service, url = self.server.service, urlsplit(self.path)
        service.asked.append(url.path)
        if url.path == "/" or url.path.startswith("/assets/"):
            return self._file("index.html" if url.path == "/" else url.path.removeprefix("/assets/"))
        if self._refused(url.path):
            return None
        if url.path == "/v1/events":
            return self._events()
        answers = {
            "/v1/status": service.status,
            "/v1/classes": lambda: {"classes": service.classes()},
            "/v1/history": lambda: {"points": service.points},
            "/v1/confusion": service.confusion,
            "/v1/memory": lambda: service.memory(int(parse_qs(url.query)["each"][0])),
        }
        if url.path == "/v1/model":
            learnt = {"X-Samples": "700", "X-Accepted": str(service.learnt)}
            return self._send(200, b"a model in " + url.query.encode(), "application/octet-stream", **learnt)
        if url.path in answers:
            return self._json(200, answers[url.path]())
        return self._problem(404, "not_found", f"There is nothing at {url.path}.")

    def do_POST(self):
        service, url = self.server.service, urlsplit(self.path)
        query = parse_qs(url.query)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if url.path in ("/v1/learn", "/v1/label"):
            service.keys.append(self.headers["Idempotency-Key"])
        if self._refused(url.path):
            return None
        if url.path == "/v1/label":
            return self._label(*json.loads(body)["labels"])
        if url.path == "/v1/correct":
            (one,) = json.loads(body)["corrections"]
            service.relabelled.append((one["sample"], one["label"]))
            return self._json(202, {"accepted": 1, "operation": service.learnt, "repeated": False, "sentence": "."})
        try:
            Image.open(io.BytesIO(body)).load()
        except OSError:
            return self._problem(415, "not_an_image", "This is no picture that can be read: send PNG.")
        if url.path == "/v1/learn":
            receipt = service.accept(query["label"][0], self.headers["Idempotency-Key"])
            service.silences -= 1
            return self._json(202, receipt) if service.silences < 0 else None
        if not service.seen:
            return self._problem(409, "nothing_learnt", "Nothing is learnt yet: teach a sample first.")
        return self._json(200, service.guess(int(query["top"][0])))

    def _label(self, one):
        service = self.server.service
        if service.questions_gone:
            return self._problem(410, "question_gone", "The image of the answer is gone.")
        service.labelled.append((one["id"], one["label"]))
        return self._json(202, service.accept(one["label"], self.headers["Idempotency-Key"]))

    def _refused(self, path):
        service = self.server.service
        if service.token is not None and self.headers["Authorization"] != f"Bearer {service.token}":
            self._problem(401, "unauthorized", "Send the service's token.", **{"WWW-Authenticate": "Bearer"})
            return True
        for refusal in service.refusals:
            if refusal[0] == path:
                service.refusals.remove(refusal)
                _, status, code, sentence, retry_after = refusal
                headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
                self._problem(status, code, sentence, **headers)
                return True
        return False

    def _events(self):
        service, heard = self.server.service, queue.Queue()
        heard.put(("status", service.status()))
        service.listeners.append(heard)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b": hello\n\n")
        try:
            while (event := heard.get()) is not None:
                name, data = event
                self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        except ConnectionError:
            return  # the page went away
        finally:
            service.listeners.remove(heard)

    def _file(self, name):
        try:
            content, kind = page.asset(name)
        except UnknownNameError as problem:
            return self._problem(404, "not_found", str(problem))
        return self._send(200, content, kind, **{"Content-Security-Policy": page.POLICY})

    def _problem(self, status, code, sentence, **headers):
        self._json(status, {"error": code, "message": sentence}, **headers)

    def _json(self, status, data, **headers):
        self._send(status, json.dumps(data).encode(), "application/json", **headers)

    def _send(self, status, content, kind, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Nothing: a test's output is its own."""


def thumbnail(i, j):
    """A small picture as a data address."""
    return "data:image/png;base64," + base64.b64encode(png(i, j)).decode()


def png(i=0, j=0, size=32):
    """A picture that differs by class and number: stripes in a colour."""
    rows, columns = np.mgrid[:size, :size]
    wave = np.sin(rows / (2 + i % 4) + j) * np.cos(columns / (2 + i % 3) - j / 2)
    tint = np.random.default_rng(i).uniform(0.3, 1, 3)
    pixels = (255 * (0.5 + 0.45 * wave)[:, :, None] * tint).astype(np.uint8)
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "PNG")
    return held.getvalue()
