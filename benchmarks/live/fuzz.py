"""Sends a live service whatever it should not be sent, and looks whether it is still itself afterwards.

    python -m benchmarks.live.fuzz --cases 10000
    python -m benchmarks.live.fuzz --cases 10000 --url http://127.0.0.1:8000 --token ... --pid ...

Half of the cases are made up from the service's own description by schemathesis, right ones and wrong ones, and each
answer is held against it. The others are broken pictures, bodies and heads, and strangers; meanwhile slow clients hold
their connections. It fails at an answer of 500 or more, at one that is not as described, at a service that does not
answer afterwards, or at one that has grown.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.live.attacks import Outcome, Target, attacks, slow
from benchmarks.live.serving import ServeProcess

WARM = 0.1  # of the cases before the first look: what a process takes once is no leak
MOST = {"files": 16, "threads": 4, "megabytes": 64}  # that it may have grown by
MODEL, MODELS = "/v1/model", 8  # each is made in a process of its own, which takes seconds: so many are asked for
MODEL_SECONDS = 120.0
SLOW = 60  # clients that wait to be sent away, at the same time


class Vitals(NamedTuple):
    """What a process holds."""

    files: int
    threads: int
    megabytes: float


class Outcomes:
    """What was sent, and how it was answered."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Outcome]] = Counter()
        self.wrong: list[str] = []

    def note(self, kind: str, outcome: Outcome) -> None:
        self.counts[kind, outcome] += 1
        if isinstance(outcome, int) and outcome >= 500:
            self.wrong.append(f"{kind}: an answer of {outcome}")

    def __len__(self) -> int:
        return self.counts.total()


def main() -> int:
    given = parser().parse_args()
    with _service(given) as (url, token, pid):
        target, outcomes, rng = Target(url, token), Outcomes(), np.random.default_rng(given.seed)
        start = time.monotonic()
        _teach(target)
        _round(target, outcomes, rng, round(WARM * given.cases), given.seed)
        before = _settled(pid)
        _round(target, outcomes, rng, given.cases - len(outcomes), given.seed + 1)
        after = _settled(pid)
        alive = _get(target, "/healthz") == _get(target, "/readyz") == 200
        _print(outcomes, time.monotonic() - start)
    grown = _growth(before, after)
    wrong = [*outcomes.wrong, *grown, *([] if alive else ["the service does not answer"])]
    for sentence, count in Counter(wrong).most_common(20):
        print(f"WRONG ({count}x): {sentence}")
    print("Passed." if not wrong else "Failed.")
    return 1 if wrong else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--cases", type=int, default=10_000)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--url", help="of a service that runs; otherwise one is started in a temporary folder")
    made.add_argument("--token", help="of that service")
    made.add_argument("--pid", type=int, help="of that service, to see whether it grows")
    return made


@contextmanager
def _service(given: argparse.Namespace) -> Iterator[tuple[str, str | None, int | None]]:
    if given.url:
        yield given.url.rstrip("/"), given.token, given.pid
        return
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory() as folder:
        serving = ServeProcess(Path(folder) / "live", "--token", token)
        serving.start()
        try:
            yield serving.url, token, serving.pid
        finally:
            code = serving.stop()
    if code:
        raise SystemExit(f"The service ended with code {code}.")


def _round(target: Target, outcomes: Outcomes, rng: np.random.Generator, cases: int, seed: int) -> None:
    """So many cases, slow clients among them, who wait while the others are at it."""
    end, waiting = len(outcomes) + cases, min(SLOW, cases // 20)
    with ThreadPoolExecutor(max(1, waiting)) as pool:
        patient = [pool.submit(slow, target, number) for number in range(waiting)]
        described(target, outcomes, (cases - waiting) // 2, seed)
        for kind, attack in islice(attacks(target, rng), end - waiting - len(outcomes)):
            outcomes.note(kind, attack())
        for one in patient:
            outcomes.note("slow", one.result())


def described(target: Target, outcomes: Outcomes, cases: int, seed: int) -> None:
    """Cases from the description, right ones and wrong ones; most of them go where there is a body."""
    import schemathesis
    from schemathesis.generation import GenerationMode

    bearer = {"Authorization": f"Bearer {target.token}"} if target.token else {}
    spec = schemathesis.openapi.from_url(f"{target.url}/openapi.json", headers=bearer)
    operations = [result.ok() for result in spec.exclude(path="/v1/events").get_all_operations()]
    weights = [8 if operation.body else 1 for operation in operations]
    for operation, weight in zip(operations, weights, strict=True):
        for mode in GenerationMode:
            most = max(1, cases * weight // (2 * sum(weights)))
            if operation.path == MODEL:
                most = min(most, MODELS)
            _described(target, outcomes, operation, mode, most=most, headers=bearer, seed=seed)


def _described(
    target: Target, outcomes: Outcomes, operation: Any, mode: Any, *, most: int, headers: dict[str, str], seed: int
) -> None:
    import hypothesis
    from schemathesis.core.failures import FailureGroup
    from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

    # A text is no picture, so what fits may be refused; and the token is put into requests that should lack it.
    excluded = [positive_data_acceptance, negative_data_rejection]

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=most,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(mode))
    def ask(case: Any) -> None:
        response = case.call(headers=headers, timeout=MODEL_SECONDS if operation.path == MODEL else target.patience)
        outcomes.note(f"described, {mode.value}", response.status_code)
        try:
            case.validate_response(response, excluded_checks=excluded)
        except FailureGroup as failures:
            outcomes.wrong += [f"{operation.label}: {failure}" for failure in failures.exceptions]

    with suppress(hypothesis.errors.Unsatisfiable):  # it takes nothing that could be wrong
        ask()


def _teach(target: Target) -> None:
    """Two samples, so that there are answers."""
    picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mM4UaEBAAN0AWn1BwN7AAAAAElFTkSuQmCC"
    raw = json.dumps({"samples": [{"label": label, "image": picture} for label in ("junk", "a")]}).encode()
    status = target.tell(
        target.head("POST", "/v1/learn", Content_Type="application/json", Content_Length=len(raw)) + raw
    )
    if status != 202:
        raise SystemExit(f"The service does not learn: it answers {status} to two samples.")


def _settled(pid: int | None) -> Vitals | None:
    """What it holds once everybody has left."""
    if pid is None:
        return None
    time.sleep(2)
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Vitals(files, int(lines["Threads"]), int(lines["VmRSS"].split()[0]) / 1024)


def _growth(before: Vitals | None, after: Vitals | None) -> list[str]:
    if before is None or after is None:
        print("Without --pid nothing is known of files, threads and memory.")
        return []
    grown = {name: getattr(after, name) - getattr(before, name) for name in MOST}
    for name, most in MOST.items():
        print(f"{name:>10}: {getattr(before, name):.0f} then {getattr(after, name):.0f} (may grow by {most})")
    return [f"{grown[name]:.0f} more {name}, {most} may be" for name, most in MOST.items() if grown[name] > most]


def _get(target: Target, path: str) -> int:
    with urllib.request.urlopen(target.url + path, timeout=target.patience) as answer:
        status: int = answer.status
        return status


def _print(outcomes: Outcomes, seconds: float) -> None:
    kinds = sorted({kind for kind, _ in outcomes.counts})
    for kind in kinds:
        counts = {str(outcome): count for (one, outcome), count in outcomes.counts.items() if one == kind}
        print(
            f"{kind:>20}: {sum(counts.values()):6} " + "  ".join(f"{name}: {counts[name]}" for name in sorted(counts))
        )
    print(f"{len(outcomes)} cases in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
