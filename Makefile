# Everything here can be done without make: README.md and CONTRIBUTING.md say how.
PYTHON ?= python3
PROMPT ?= The for statement
PORT ?= 8000
BIN := .venv/bin
# uv, where it is on the PATH, is quicker than venv and pip. --seed: pip is there all the same.
UV := $(shell command -v uv 2>/dev/null)
VENV := $(if $(UV),uv venv --quiet --seed --python $(PYTHON),$(PYTHON) -m venv) .venv
INSTALL := $(if $(UV),uv pip install --python $(BIN)/python,$(BIN)/python -m pip install --disable-pip-version-check) --quiet
# Of the chapters in CHAPTER="09 rope", or of all.
ask = $(shell $(BIN)/python -c 'import sys; from grader.course import chapters; print(*[chapters.find(n).$(1) for n in sys.argv[1:]])' $(CHAPTER))

.PHONY: check test watch notebooks bench mutants stubs pictures lint generate serve pocket evidence site links help

check: .venv/student          ## grade exercises/ and show the board
	$(BIN)/python -m grader check

watch: .venv/student          ## grade at every save
	$(BIN)/python -m grader watch

test: .venv/maintainer lint   ## grade exercises/, then test the course itself; what concerns a chapter: make test CHAPTER=09
	$(BIN)/python -m grader check $(CHAPTER); test $$? -le 1
	$(BIN)/python -m pytest tests/course -q -n auto --dist worksteal --chapter "$(CHAPTER)"
	$(BIN)/python -m pytest --nbval $(if $(CHAPTER),$(call ask,notebook),notebooks) -q -n 2 --dist loadfile -p tests.course.lessons.fresh_notebooks

lint: .venv/maintainer        ## look over the code with ruff
	$(BIN)/ruff check

notebooks: .venv/student      ## run lessons on fresh stubs and keep their outputs: all, or make notebooks CHAPTER=28
	$(BIN)/python -m tests.course.lessons.run_notebooks $(CHAPTER)

bench: .venv/student          ## speed and memory, as ratios measured in one run
	$(BIN)/python -m tests.course.bench

mutants: .venv/maintainer     ## faults in the solutions that no check notices, and an input that shows each: make mutants CHAPTER=09
	$(BIN)/python -m tests.course.checks.mutants $(CHAPTER)

generate: .venv/student       ## continue a text: make generate PROMPT="The for statement"
	$(BIN)/python assets/pocket/generate.py "$(PROMPT)"

serve: .venv/serve            ## an OpenAI-compatible server with your engine (lesson 25); or make serve FOLDER=checkpoint PORT=8000
	$(BIN)/python -m given.server $(FOLDER) --port $(PORT)

pocket: .venv/student         ## train the pocket model again, or on from where it was stopped
	$(BIN)/python assets/pocket/train.py
	$(BIN)/python assets/pocket/card.py

stubs: .venv/student          ## write the exercises anew from the solutions
	$(BIN)/python -m grader stubs

evidence: .venv/student       ## run the experiments again that lessons quote
	for script in assets/evidence/[0-9]*.py; do $(BIN)/python $$script || exit 1; done

pictures: .venv/student       ## draw the maps, the lessons' drawings and the README's screen; or make pictures CHAPTER=09
	$(BIN)/python assets/map/draw_map.py $(CHAPTER)
	for script in $(if $(CHAPTER),$(patsubst %,assets/flow/draw_%*.py,$(call ask,number)),assets/flow/draw_*.py); do \
		$(BIN)/python $$script || exit 1; done
	$(if $(CHAPTER),,$(BIN)/python assets/draw_screen.py)

site: .venv/site              ## the lessons as a site, in site/; make site SOLUTIONS=no BOOK=yes: without solutions, with PDF and EPUB
	$(BIN)/python -m docs $(if $(filter no,$(SOLUTIONS)),--no-solutions) $(if $(filter yes,$(BOOK)),--book)

links: .venv/student          ## into the lessons: where to open them, from pyproject.toml's Repository
	$(BIN)/python -m grader.author.links

help:                         ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

.venv/student: requirements.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed; name one with make PYTHON=...')"
	test -x $(BIN)/python || $(VENV)
	$(INSTALL) -r requirements.txt
	touch $@

.venv/maintainer: requirements-dev.txt requirements-class.txt requirements-cluster.txt requirements-serve.txt .venv/student
	$(INSTALL) -r requirements-dev.txt
	touch $@

.venv/serve: requirements-serve.txt .venv/student
	$(INSTALL) -r requirements-serve.txt
	touch $@

.venv/site: .venv/student requirements-site.txt docs/package-lock.json
	$(INSTALL) -r requirements-site.txt
	npm ci --prefix docs --silent
	touch $@
