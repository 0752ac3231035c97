# Everything a person or a machine does with this repository. `make` lists it.

GO    ?= go
BIN   := bin/windtunnel
# Tools are pinned here and run with `go run`, so that they are no dependencies
# of windtunnel itself and nothing has to be installed.
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

# windtunnel is built without cgo: one static binary that runs anywhere. Only
# the race detector needs a C compiler, and is used where there is one.
export CGO_ENABLED ?= 0
HAVE_CC := $(shell command -v $${CC:-cc} 2>/dev/null)
ifeq ($(CI)$(RACE),true)
RACE := $(if $(HAVE_CC),some,)
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## List what there is to make
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build bin/windtunnel
	@[ -e $(BIN) ] || echo "building windtunnel: the first time some 300 packages are fetched and compiled, which takes minutes"
	@$(GO) build -o $(BIN) ./cmd/windtunnel

.PHONY: run
run: build ## Build, get Envoy, play the embedded scenario (ARGS='--keep' adds flags)
	@$(BIN) run $(ARGS)

# Tests of what is live wait more than they compute: many play at once, on few cores, too. They make garbage for
# minutes, and collect it a quarter as often as a server would. Some 150 test programs are linked, which takes half as
# long without the debugger's tables (stack traces do not need them); make check runs go vet once, over everything.
TEST := GOGC=$(or $(GOGC),400) $(GO) test -vet=off -ldflags='-s -w' -timeout $(or $(TIMEOUT),20m) -p 3 -parallel 16
RACETEST := CGO_ENABLED=1 $(TEST) -race

# What decides is one caller's at a time (internal/archtest: no goroutine, no lock), so
# that there is no race to look for: these packages are tested without the detector, and
# what drives them with it. And internal/archtest only reads the source.
PURE := core virtual scenario internal/archtest internal/parity internal/contract

# Where goroutines meet: CI looks for data races there, and test-nightly wherever one can be.
MEET := live/drive live/serve live/epp live/extproc live/kvevents live/modelserver live/otlp live/sidecar web
MEET_STACK := ClientLeaves|ConfigurationIsEditedInARun|DisaggregatedFlow|DynamoFrontendLost|EPPDiesWhileHolding|HeldFlow|IndexLost|KillsUnderLoad|ManagerRestarts|PlainFlow|PredictorLost|RestartOfThePickerLosesNothing

# Packages that have benchmarks and no test: make bench-smoke runs them. And large test programs of few tests, which
# make test-nightly alone builds: whole stacks with foreign clients, an hour's load, a plug-in of one's own.
LEFT := $(addprefix bench/,dynamo held hops modelserver predict sidecar)
ifeq ($(WINDTUNNEL_NIGHTLY),)
LEFT += bench/soak examples/custom-scorer internal/chaos/wall live/stack/clients
endif

below = '/($(subst $() ,|,$(1)))(/|$$)'

.PHONY: test
test: ## Test what a change may break, with the real Envoy, in minutes (RACE=1 looks for data races, PKG=./core/... for a part)
ifeq ($(filter-out 0,$(RACE)),)
	$(TEST) $(or $(PKG),$$($(GO) list ./... | grep -Ev $(call below,$(LEFT))))
else ifneq ($(PKG),)
	$(RACETEST) $(PKG)
else ifeq ($(RACE),some)
	@failed=0; set -x; \
	$(TEST) $$($(GO) list ./... | grep -Ev $(call below,$(MEET) $(LEFT))) || failed=1; \
	$(RACETEST) $(MEET:%=./%/...) || failed=1; \
	$(RACETEST) ./live/stack -run '^Test($(MEET_STACK))$$' || failed=1; \
	exit $$failed
else
	@failed=0; set -x; \
	$(TEST) $(PURE:%=./%/...) || failed=1; \
	$(RACETEST) $$($(GO) list ./... | grep -Ev $(call below,$(PURE))) || failed=1; \
	exit $$failed
endif

.PHONY: test-nightly
test-nightly: ## Test all that there is: every example live, every recording through every port, more of each property; then what make test runs, for data races
	@failed=0; WINDTUNNEL_NIGHTLY=all $(MAKE) test TIMEOUT=60m RACE=0 || failed=1; \
	$(if $(HAVE_CC),$(MAKE) test TIMEOUT=60m RACE=1 || failed=1;) \
	$(MAKE) test-statistics || failed=1; $(MAKE) test-conformance || failed=1; \
	$(MAKE) test-chart || failed=1; $(MAKE) test-kubernetes || failed=1; exit $$failed

.PHONY: test-statistics
test-statistics: ## Hold what many runs say against what must come of them, which takes long
	WINDTUNNEL_STATISTICS=all $(GO) test ./report/... ./virtual/... ./internal/search/... ./internal/tune ./cmd/windtunnel/... -run 'Statistics|QueueingTheory|CompareFinds' -v -count 1 -timeout 60m

.PHONY: test-clients
test-clients: ## Drive model server and whole stacks with the clients that people use (needs Python with pip, 3.12 or newer or on a Debian, Node with npm, a Prometheus or apt-get)
	WINDTUNNEL_CLIENTS=all $(GO) test ./live/stack/clients -count 1 -timeout 40m

.PHONY: test-observe
test-observe: ## Ask a real Prometheus for every panel and rule of windtunnel observe (needs one, or apt-get), and have a whole collector take spans
	WINDTUNNEL_OBSERVE=1 $(GO) test ./live/stack/clients -run 'TestQueries' -count 1 -timeout 20m
	cd test/observe && $(GO) test -count 1 -timeout 20m ./...

.PHONY: test-conformance
test-conformance: ## Play Gateway API's own conformance suite against windtunnel up (TESTS=HTTPRouteWeight for one test; builds Kubernetes' libraries, which takes minutes)
	@mkdir -p bin; cd test/conformance && $(GO) test -mod=mod -count 1 -timeout 10m -run 'TestConformance/$(TESTS)' -v . > ../../bin/conformance.log 2>&1; status=$$?; \
	sed -n '/^not claimed:/,/^[0-9]* passed/p' ../../bin/conformance.log; [ $$status = 0 ] || { tail -3 ../../bin/conformance.log; echo "see bin/conformance.log"; }; exit $$status

.PHONY: test-chart
test-chart: ## Render deploy/chart with Helm's own code, and check its objects by Kubernetes' schemas and the CRDs' rules (UPDATE=1 renews the golden files; builds Helm, which takes minutes)
	cd test/chart && $(GO) test -count 1 -timeout 20m . $(if $(UPDATE),-update)

.PHONY: test-kubernetes
test-kubernetes: ## Play jobs and the controller against a real API server, which is built first (KUBERNETES_VERSION; the first time takes minutes to an hour)
	./hack/kubernetes > /dev/null
	cd kubernetes && WINDTUNNEL_KUBERNETES=1 $(GO) test -count 1 -timeout 30m ./...

.PHONY: test-processors
test-processors: ## Build for processors with and without fused arithmetic, and get the same bytes of both
	WINDTUNNEL_PROCESSORS=all $(GO) test ./virtual -run TestSameOnEveryProcessor -count 1 -v -timeout 30m

.PHONY: test-changes
test-changes: ## Change endpoints 10,000 times under load, and lose no request (CHANGES=500 for fewer)
	WINDTUNNEL_CHANGES=$(or $(CHANGES),10000) $(GO) test ./live/up -run TestManyEndpointChanges -count 1 -v -timeout 60m

.PHONY: test-replay
test-replay: ## Play every example live for up to 20 s, and what entered its endpoint picker again (REPLAY=5s for less)
	WINDTUNNEL_REPLAY_TIME=$(or $(REPLAY),20s) $(GO) test ./live/stack -run TestExamplesThroughCore -count 1 -v -timeout 20m

BENCHED := ./bench/... ./internal/punctual ./core/modelserver/engine ./core/kv/... ./core/modelserver/latency/... ./core/kv/link ./core/machine ./core/wire/metrics ./core/wire/openai ./core/epp/picker/... ./core/wire/sse ./core/wire/tokens ./core/wire/header ./live/epp ./live/extproc ./live/kvevents ./live/kvmanager ./live/up ./report ./web

.PHONY: chaos
chaos: ## Play random faults over all examples in virtual time, and check that nothing is lost or left (SEEDS=1000 for fewer)
	WINDTUNNEL_CHAOS=$(or $(SEEDS),10000) $(GO) test ./internal/chaos -run TestSeedsOverExamples -count 1 -v -timeout 2h

.PHONY: bench
bench: ## Measure baselines and windtunnel in one run, and fail where a gate is missed (PKG=./core/modelserver/engine for one part)
	@./scripts/bench "$(GO)" -timeout 60m -benchmem $(or $(PKG),$(BENCHED))

.PHONY: bench-large
bench-large: ## Play 10,000,000 requests in virtual time, and look what memory that takes
	@WINDTUNNEL_BENCH_LARGE=1 ./scripts/bench "$(GO)" -timeout 60m -benchtime 1x -bench Large ./bench/virtual

.PHONY: bench-ui
bench-ui: ## Measure the page in a real Chromium: first view, frames under 2,000 events/s, scrolling 100,000 rows, what it costs a run
	@./scripts/bench "$(GO)" -timeout 20m -benchtime 3x ./web

PICTURED := topology=topology-3-1440-light fleet=topology-300-1440-dark phone=topology-30-390-light \
	requests=requests-30-1440-dark request=request-3-1440-light why=why-3-1440-light time=time-3-1440-light \
	whatif=whatif-3-1440-dark

.PHONY: pictures
pictures: ## Write pictures of each view of the page into bin/pictures, hold axe against them, and renew docs/page-*.png
	@mkdir -p bin/pictures && WINDTUNNEL_PICTURES=$(CURDIR)/bin/pictures $(GO) test ./web -count 1 -run '^TestPictures$$' -timeout 30m
	@for x in $(PICTURED); do cp bin/pictures/$${x#*=}.png docs/page-$${x%%=*}.png; done; ls docs/page-*.png

.PHONY: soak-ui
soak-ui: ## Keep the page open on a run that never ends, and look whether it grows (SOAK=1h for more)
	WINDTUNNEL_UI_SOAK=$(or $(SOAK),5m) $(GO) test ./web -run TestSoak -v -count 1 -timeout 3h

.PHONY: bench-smoke
bench-smoke: # that the benchmarks against a baseline work: little of each, no gates
	@./scripts/bench "$(GO)" -timeout 5m -short -benchtime 1x ./bench/...

.PHONY: bench-peers
bench-peers: ## Hold virtual time against DynoSim on the same work (PEERS="-requests 500000" for more; needs Python 3)
	$(GO) run ./bench/peers $(PEERS)

.PHONY: soak
soak: ## Run whole stacks 10 minutes under ordinary and 10 under hostile load, and look at what grows (SOAK=1m for less)
	$(GO) test ./bench/soak -v -run 'TestOrdinary|TestHostile' -timeout 2h -soak $(or $(SOAK),10m)

.PHONY: soak-mixed
soak-mixed: ## Run whole stacks 1 hour under 20 mixed requests a second, and look at what grows (SOAK=1m for less)
	$(GO) test ./bench/soak -v -run TestMixed -timeout 3h -soak $(or $(SOAK),1h)

.PHONY: silicon
silicon: build ## Fit the parameters of step times to the measured GPUs of internal/silicon/data again, and renew docs/silicon.md
	gzip -9nc internal/silicon/data/silicon.csv > internal/silicon/data/silicon.csv.gz
	$(BIN) calibrate --results internal/silicon/data/silicon.csv --guesses --force --file core/modelserver/latency/data/calibration.json
	WINDTUNNEL_SILICON=write $(GO) test ./internal/silicon -run TestPage -v -count 1 -timeout 30m
	$(GO) test ./internal/silicon -count 1

.PHONY: docs
docs: ## Build the documentation as a site, bin/docs/index.html, and fail on a link that leads nowhere
	@cd scripts/site && $(GO) vet . && $(GO) test . && $(GO) run . ../.. ../../bin/docs

.PHONY: size
size: ## Count the production lines: those with code, of Go files that are neither tests nor generated (DIR=core for a part)
	@$(GO) run scripts/size.go $(DIR)

.PHONY: check
check: check-format check-vet check-tidy check-lint check-vuln ## Check format, vet, go.mod, linters, known vulnerabilities

.PHONY: check-format
check-format:
	@out=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); if [ -n "$$out" ]; then echo "not formatted; run make format:"; echo "$$out"; exit 1; fi
	@echo "ok    gofmt"

.PHONY: check-vet
check-vet:
	@$(GO) vet ./...
	@echo "ok    go vet"

.PHONY: check-tidy
check-tidy:
	@$(GO) mod tidy -diff || { echo "go.mod is not tidy; run go mod tidy"; exit 1; }
	@$(GO) mod verify >/dev/null
	@echo "ok    go mod tidy, go mod verify"

.PHONY: check-lint
check-lint: # .golangci.yml says why for each linter; the first time it is built, which takes minutes
	@$(GO) run $(GOLANGCI) run
	@cd kubernetes && $(GO) run $(GOLANGCI) run
	@echo "ok    golangci-lint"

.PHONY: check-page
check-page: ## Check the types of the page's modules with tsc, which npm fetches once (needs Node with npm)
	@WINDTUNNEL_TYPES=1 $(GO) test ./web -run '^TestTypes$$' -count 1 -v

# The list of known vulnerabilities is on the network; a machine that cannot
# reach it says so and goes on.
.PHONY: check-vuln
check-vuln:
	@./scripts/vuln "$(GO)" "$(GOVULNCHECK)"

.PHONY: release
release: ## Build what a release consists of into dist/ (VERSION=v1.2.3 PLATFORMS="linux/amd64 darwin/arm64")
	@./scripts/release $(VERSION) $(PLATFORMS)

.PHONY: format
format: ## Format the source
	@gofmt -w $$(git ls-files '*.go')

.PHONY: golden
golden: ## Rewrite what tests compare with: docs, scripts' expected output (look at the diff before you commit it)
	$(GO) test ./scenario ./report -rewrite
	$(GO) test ./scenario/schema ./cmd/windtunnel/program -update
	$(GO) test ./web -run TestDeclarations -update
	$(GO) test . ./web ./internal/lab -run TestPacked -update

.PHONY: clean
clean: ## Remove what was built
	@rm -rf bin dist
