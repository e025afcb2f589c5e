# Everything happens in .venv, which the first target makes on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
export PYTHONDONTWRITEBYTECODE :=  # else every process that the tests start compiles the package anew

.PHONY: demo test test-slow test-all test-wheel check mutants lint dist bench bench-gpu bench-live fuzz reproduction docs clean

demo: $(READY)  ## BALM, CLIB and ER on the embedded digits, three seeds each: a table and a figure
	$(BIN)/iblurry run

test: $(READY) lint  ## lint, format, types and the tests, without the slow ones; says why tests are skipped
	$(BIN)/pytest -n 2 -rs -m "not slow"

test-slow: $(READY)  ## many kills, wide crosses, fuzz, browsers
	$(BIN)/pytest -n 2 -rs -m slow

test-all: test test-slow  ## every test

test-wheel: $(READY)  ## the wheel in a fresh environment of every Python here, each with a torch of its own
	IBLURRY_ALL_PYTHONS=1 $(BIN)/pytest -m slow tests/test_release.py

check: $(READY) lint  ## lint, types and the tests of what changed since main, in under a minute
	$(BIN)/python -m tools.check

mutants: $(READY)  ## changes one operator or number of a formula at a time: which changes does no test notice?
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[mutants]'
	$(BIN)/python -m tools.mutants $(MUTANTS)

dist: $(READY)  ## wheel and sdist, in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## cost per sample over a long stream, and an update against the bare PyTorch loop
	$(BIN)/python -m benchmarks.cost

bench-gpu: $(READY)  ## on a machine with a GPU and CIFAR-10: engines compute the same, what each method costs, exact resume
	$(BIN)/python -m benchmarks.gpu --jobs 4 --json runs/bench-gpu.json
	$(BIN)/python -m benchmarks.gpu --only stages --methods er clib --network resnet34 --memory 2000 --samples 200 --json runs/bench-resnet34.json
	$(BIN)/python -m benchmarks.gpu.resume er clib gdumb

bench-live: $(READY)  ## the live service on this machine: learning, answers, idle time, ten pictures a class; needs CIFAR-10 and iblurry[pretrained]
	status=0; for part in live.load live.crowd frozen live.idle; do $(BIN)/python -m benchmarks.$$part || status=1; done; exit $$status

fuzz: $(READY)  ## 10,000 requests that no honest client sends, to a live service
	$(BIN)/python -m benchmarks.live.fuzz --cases 10000

reproduction: $(READY)  ## docs/reproduction.md from the collected journals and the paper's numbers; needs no GPU
	$(BIN)/iblurry dev reproduction

docs: $(READY)  ## the documentation site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("iblurry needs Python 3.11 or newer; set PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,docs,sklearn,live]'
	touch $(READY)

clean:
	rm -rf .venv runs site
