# Two commands do everything on a fresh Debian machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
OUT    ?= demo-out

.PHONY: help venv demo test test-slow lint docs clean

help:
	@echo 'make demo       fine-tune on an embedded Swift, unsplit and split ($(OUT)/)'
	@echo 'make test       unit, property and functional tests on a real embedded Swift'
	@echo 'make test-slow  the tests marked slow'
	@echo 'make lint       ruff and the import contracts'
	@echo 'make docs       the manual, doc/build/html'
	@echo 'make clean      remove what these made, $(VENV) too'

venv: $(VENV)/.ready

$(VENV)/.ready: setup.cfg constraints.txt tools/bootstrap.sh
	@PYTHON=$(PYTHON) tools/bootstrap.sh

demo: venv
	$(VENV)/bin/hapi demo --out $(OUT) --json $(OUT)/report.json

test: venv
	$(VENV)/bin/python -m pytest -m 'not slow' --durations=10 $(TESTS)

test-slow: venv
	$(VENV)/bin/python -m pytest -m slow $(TESTS)

lint: venv
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports

docs: venv
	$(VENV)/bin/python -m sphinx -W --keep-going -b html doc/source doc/build/html

clean:
	rm -rf $(VENV) $(OUT) doc/build build dist *.egg-info .pytest_cache .ruff_cache
