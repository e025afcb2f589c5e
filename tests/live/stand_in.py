"""A service that learns nothing: it counts, remembers keys, and gets into trouble when it is told to."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np

IMAGES = np.arange(7 * 64, dtype=np.int64).reshape(7, 1, 8, 8).astype(np.uint8)
MEMORY = {"capacity": 500, "size": 0, "classes": []}
POINT = {"at": 100, "accuracy": 0.5, "recent_accuracy": 0.6, "learning_rate": 0.0003, "classes": 2}


class StandIn:
    """Listens on a port of its own from `with` on.

    `troubles` come one for each request to learn: "busy" (429), "away" (503), "full" (507), "drop" (the connection
    breaks before anything is kept), "commit" (it breaks after that), "proxy" (502, after it, too); "" is none. Pictures
    whose bytes are `unreadable` are refused, and what is longer than the `batch` or the `queue_limit`.
    """

    def __init__(self, *, image=(1, 8, 8), token=None, batch=256, queue_limit=1000, prefix="", port=0):
        self.port = port
        self.image, self.token, self.batch, self.queue_limit, self.prefix = image, token, batch, queue_limit, prefix
        self.troubles, self.requests, self.connections = [], [], 0
        self.unreadable, self.sentence = set(), None  # what is said of them, unless the usual
        self.held_out = []
        self.corrections = []  # as they came
        self.samples, self.keys = [], {}  # (label, image or pixels); key: (body, answer)
        self.learnt, self.state = None, "learning"  # None: all that is accepted
        self.unready = None  # or a sentence why
        self.threshold = None  # below which answers are unknown
        self.lines = b""  # of /v1/events

    def __enter__(self):
        stand_in = self

        class Handler(StandInHandler):
            service = stand_in

        class Server(ThreadingHTTPServer):
            daemon_threads = False  # so that closing waits for them

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}{self.prefix}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def status(self):
        learnt = len(self.samples) if self.learnt is None else self.learnt
        return {
            "image": list(self.image),
            "queue_limit": self.queue_limit,
            "accepted": len(self.samples),
            "learnt": learnt,
            "operations": len(self.samples) + len(self.corrections),
            "applied": learnt + len(self.corrections),
            "model": learnt,
            "model_operation": learnt + len(self.corrections),
            "queue": len(self.samples) - learnt,
            "accuracy": 0.75 if learnt else None,
            "recent_accuracy": 0.8 if learnt else None,
            "held_out": len(self.held_out),
            "held_out_accuracy": 0.5 if self.held_out else None,
            "classes": len({label for label, _ in self.samples}),
            "window": 5,
            "state": self.state,
            "sentence": f"It is {self.state}.",
        }


class StandInHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 1  # a kept connection ends then, so that the server can
    service: StandIn

    def setup(self):
        super().setup()
        self.service.connections += 1

    def do_GET(self):
        service = self.service
        path = self.path.removeprefix(service.prefix)
        if path == "/readyz":
            return self.answer(503, self.no("not_ready", service.unready)) if service.unready else self.answer(200, {})
        if not self.allowed():
            return None
        if path == "/v1/events":
            return self.stream()
        found = {
            "/v1/status": service.status(),
            "/v1/classes": {"classes": [{"label": label} for label, _ in service.samples]},
            "/v1/memory?each=3": MEMORY,
            "/v1/history": {"points": [POINT]},
            "/v1/confusion": {"window": 1000, "counts": [{"label": "cat", "answer": "dog", "count": 2}]},
        }
        return self.answer(200, found[path])

    def do_POST(self):
        service = self.service
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        path = urlsplit(self.path.removeprefix(service.prefix))
        if not self.allowed():
            return None
        if path.path == "/v1/predict":
            return self.predict(json.loads(raw)["images"], int(parse_qs(path.query)["top"][0]))
        assert self.headers["Content-Type"] == "application/json"
        key = self.headers["Idempotency-Key"]
        if path.path == "/v1/correct":
            service.corrections += json.loads(raw)["corrections"]
            sentence, last = "It is forgotten in time.", len(service.samples) + len(service.corrections)
            return self.answer(202, {"accepted": 1, "operation": last, "repeated": False, "sentence": sentence})
        if path.path == "/v1/held-out":
            service.held_out += json.loads(raw)["samples"]
            last = len(service.samples) + len(service.corrections)
            return self.answer(202, {"accepted": len(service.held_out), "operation": last, "repeated": False})
        if path.path == "/v1/label":
            labels = json.loads(raw)["labels"]
            return self.answer(*self.keep(key, raw, [{"label": one["label"], "pixels": one["id"]} for one in labels]))
        samples = json.loads(raw)["samples"]
        service.requests.append((key, len(samples)))
        trouble = service.troubles.pop(0) if service.troubles else ""
        if trouble == "busy":
            return self.answer(429, self.no("queue_full", "The queue is full; send it again later."), later=2)
        if trouble == "away":
            return self.answer(503, self.no("stopping", "The service is stopping."))
        if trouble == "full":
            return self.answer(507, self.no("disk_full", "The disk is full; make room."))
        if trouble == "drop":
            return self.hang_up()
        if len(samples) > service.batch:
            return self.answer(413, self.no("too_many", f"Give at most {service.batch} samples at a time."))
        if (refusal := self.unread("samples", samples)) is not None:
            return self.answer(422, refusal)
        answer = self.keep(key, raw, samples)
        if trouble == "commit":
            return self.hang_up()
        if trouble == "proxy":
            return self.answer(502, "Bad gateway")
        return self.answer(*answer)

    def unread(self, name, given):
        for place, one in enumerate(given):
            if base64.b64decode(one.get("image", "")) in self.service.unreadable:
                sentence = f"{name}.{place}.image is not a readable picture; send a whole PNG."
                refusal = self.no("unreadable_picture", self.service.sentence or sentence)
                return refusal | {"index": place, "field": "image"}
        return None

    def keep(self, key, raw, samples):
        service = self.service
        if key in service.keys:
            before, answer = service.keys[key]
            if before != raw:
                return 422, self.no("key_reused", "This key came with other samples before; use another.")
            return 202, {**answer, "repeated": True}
        if len(samples) > service.queue_limit:  # what came before needs no room
            return 413, self.no("too_many", f"{len(samples)} samples are more than may wait; send fewer.")
        first = len(service.samples) + 1
        service.samples += [(one["label"], base64.b64decode(one.get("image") or one["pixels"])) for one in samples]
        answer = {"accepted": len(samples), "first": first, "last": len(service.samples), "repeated": False}
        service.keys[key] = raw, answer
        return 202, answer

    def predict(self, images, top):
        """The label that came with the same bytes, else the first."""
        known = {content: label for label, content in self.service.samples}
        if not known:
            return self.answer(409, self.no("nothing_learnt", "Nothing is learnt yet; teach it first."))
        if len(images) > self.service.batch:
            return self.answer(413, self.no("too_many", "Give fewer."))
        if (refusal := self.unread("images", images)) is not None:
            return self.answer(422, refusal)
        answers = []
        for one in images:
            label = known.get(base64.b64decode(one.get("image") or one["pixels"]), self.service.samples[0][0])
            others = sorted({*known.values()} - {label})
            ranked = [{"label": label, "probability": 0.9}, *({"label": each, "probability": 0.01} for each in others)]
            unknown = self.service.threshold is not None and self.service.threshold > 0.9
            answers.append({"id": f"{len(answers):08d}", **ranked[0], "unknown": unknown, "top": ranked[:top]})
        said = {"model": len(self.service.samples), "threshold": self.service.threshold, "answers": answers}
        return self.answer(200, said)

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(self.service.lines)

    def allowed(self):
        token = self.service.token
        if token is None or self.headers["Authorization"] == f"Bearer {token}":
            return True
        self.answer(401, self.no("token", "This service asks for a token; send it as Authorization: Bearer TOKEN."))
        return False

    def no(self, code, sentence):
        return {"error": code, "message": sentence}

    def answer(self, status, content, *, later=None):
        raw = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        if later is not None:
            self.send_header("Retry-After", str(later))
        self.end_headers()
        self.wfile.write(raw)

    def hang_up(self):
        self.close_connection = True

    def log_message(self, *_):
        """Nothing is said on the error stream."""
