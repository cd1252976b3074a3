# cnibox: every CNI plugin in one binary. `make help` lists the targets.

BIN     := bin
PREFIX  := /opt/cni/bin
# The plugins themselves, what few of them use, and what waits for the kernel are not inlined: that makes cnibox smaller, and no call slower.
GCFLAGS := $(patsubst %,-gcflags=%/...=-l,github.com/cnibox/cnibox/plugins github.com/cnibox/cnibox/pkg/netfilter github.com/insomniacslk github.com/godbus \
	github.com/vishvananda/netlink)
# The same for all that is compiled, tests too: otherwise it is compiled twice. They are not vetted, as lint does that.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -vet=off $(GCFLAGS)
# The environment may say GOTOOLCHAIN=local, as build roots without a network do. A release is the same bytes only of the same Go.
toolchain := $(shell sed -n 's/^toolchain //p' go.mod)
export GOTOOLCHAIN ?= $(toolchain)
release release-check: export GOTOOLCHAIN := $(toolchain)

# Static, reproducible, and at a fixed address: a position-independent binary starts a fifth slower. GCFLAGS stand here too, as packagers may give GOFLAGS of their own.
GOBUILD := go build $(GCFLAGS) -buildvcs=false -buildmode=exe -ldflags='-s -w -buildid='
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT  := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME := 10s
SHORT := -short

.PHONY: help build cni-conformance schemas messages test-messages demo test test-long unit e2e rows conformance e2e-runtimes e2e-runtimes-short bench bench-gc bench-many bench-egress bench-dns bench-etcd bench-short fuzz fuzz-short fuzz-dns lint dependencies vulncheck vulndb test-vm test-vm-short test-vm-qemu test-limits test-kernels fips test-systemd test-egress test-etcd etcd-servers crash soak site site-test charts release release-test release-check test-packages test-rootless test-rootless-short check-build-root offline-build install-system install uninstall setup clean

help: ## show this
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

build: ## build bin/cnibox, bin/cnibox-etcd and bin/cnictl
	@mkdir -p $(BIN)
	$(GOBUILD) -o $(BIN)/cnibox ./cmd/cnibox
	$(GOBUILD) -o $(BIN)/cnibox-etcd ./cmd/cnibox-etcd
	$(GOBUILD) -o $(BIN)/cnictl ./cmd/cnictl

# A test binary that the linker tells to be a program of its own.
cni-conformance: ## build bin/cni-conformance, all rows of conformance as one program for everybody's plugins
	@mkdir -p $(BIN)
	go test -c -buildvcs=false -ldflags='-s -w -buildid= -X github.com/cnibox/cnibox/test/conformance.standalone=yes' -o $(BIN)/cni-conformance ./test/conformance

setup: ## install what demo and tests need (Debian packages)
	@scripts/setup.sh

demo: setup build ## run the main job in namespaces of its own: a container with a published port
	@scripts/demo.sh $(BIN)

test: setup build unit e2e ## install what is missing and pass the tests

unit: build ## unit tests, and each fuzz test on its seeds
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test $(SHORT) -p 4 -timeout 3h $$(go list ./... | grep -v /test/) ./test/lint ./test/pagetest ./test/project

test-long: ## pass the tests with all that -short leaves out, and all rows without root
	$(MAKE) test SHORT=
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test -count=1 -timeout 3h ./test/upgrade ./test/operator -run '^Test(ReplaceUnderLoad|DoctorHarmsNobody)$$' -args -long
	$(MAKE) test-messages
	$(MAKE) test-rootless

test-rootless: setup build ## try all rows of conformance as nobody in a user namespace, and some in user-mode-linux (ten minutes)
	@scripts/test-rootless.sh
	@scripts/test-rootless.sh vm

test-rootless-short: setup build ## some of it, to see that it works
	@scripts/test-rootless.sh short

# Tests wait, too: more packages at once than there are processors, the longest first. The limit ends what hangs: on a machine whose processes start
# slowly the longest package took 39 minutes, and nothing was wrong.
e2e: build ## end-to-end tests over the real kernel, in namespaces of their own
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test $(SHORT) -count=1 -p 3 -parallel 8 -timeout 3h ./test/operator ./test/conformance ./test/agent ./test/upgrade ./test/firewall ./test/multihost ./test/e2e ./test/etcd ./test/dhcp ./test/conformance/alone ./test/ways ./test/crash ./test/netlab ./test/example

test-vm: setup build ## pass tests in user-mode-linux that need what this kernel may lack
	@scripts/test-vm.sh uml

test-vm-short: setup build ## some of it, to see that it works
	@scripts/test-vm.sh uml short

test-vm-qemu: setup build ## test-vm with the kernel of Debian, which takes longer
	@scripts/test-vm.sh qemu-6.1

test-limits: setup build ## drop packets for limits that all namespaces of a machine share, with the kernel of Debian (minutes)
	@scripts/test-vm.sh qemu-6.1 limits

# KERNELS are some of "here uml qemu-5.10 qemu-6.1 qemu-6.12", RUN is which rows, FEW=1 all of them: what is not tried stays on the page.
test-kernels: setup build ## try a tenth of the rows of cnibox under five kernels, into docs/project/kernels.md (an hour)
	@RUN='$(RUN)' FEW='$(FEW)' scripts/test-kernels.sh $(KERNELS)

# ETCD is 3.5 or 3.6, of `make etcd-servers`, or any directory with an etcd and its etcdutl in it. Without it the distribution's is taken.
test-etcd: setup build ## 10,000 addresses, 500 pods, each failure, 10 restores, and 20 histories of kills and partitions on three hosts with etcd (an hour)
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) CNIBOX_ETCD_DIR=$(if $(wildcard $(BIN)/etcd/$(ETCD)/etcd),$(CURDIR)/$(BIN)/etcd/$(ETCD),$(ETCD)) go test -count=1 -v -timeout 3h ./test/etcd -args -long -restores 10

etcd-servers: ## build etcd 3.5 and 3.6 from their modules, into bin/etcd (some minutes)
	@scripts/etcd-servers.sh $(BIN)/etcd

test-systemd: setup build ## try the systemd units under a systemd in user-mode-linux (some minutes)
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test -count=1 -timeout 30m ./test/systemd

crash: setup build ## kill each plugin at each call that changes something, here and in user-mode-linux (an hour)
	@scripts/test-vm.sh uml crash

# FIPS is a version of Go's cryptographic module: latest, certified or inprocess. RUN is which rows: all that begin so. `make fips RUN=` tries all.
# GODEBUG is the tests' alone and reaches what they run: Go's own tools don't work so.
FIPS := latest
fips: RUN := (loopback|static|host-local|portmap)$$/.*(ADD|DEL|CHECK|STATUS)
fips: setup ## build with Go's FIPS 140-3 module into bin/fips, and try rows and etcd over TLS on it, with fips140=only (minutes)
	GOFIPS140=$(FIPS) $(MAKE) build BIN=$(BIN)/fips
	for program in cnibox cnibox-etcd cnictl; do go version -m $(BIN)/fips/$$program | grep -e GOFIPS140 -e DefaultGODEBUG=.*fips140=on || exit 1; done
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN)/fips go test $(SHORT) -count=1 ./test/conformance -exec 'env GODEBUG=fips140=only' -timeout 3h -run 'TestConformance/links/$(RUN)'
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN)/fips go test $(SHORT) -count=1 ./test/etcd -exec 'env GODEBUG=fips140=only' -run '^TestSecure$$'

rows: ## put the names of all rows of conformance on their page, docs/project/conformance.md
	go test -count=1 ./test/conformance -run '^TestRows$$' -args -report $(CURDIR)/docs/project/conformance.md

conformance: setup build ## try all rows on cnibox, the reference plugins and the distribution's, into docs/project/conformance.md
	@scripts/test-vm.sh uml rows
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test -count=1 ./test/conformance -run TestConformance -timeout 3h -args -suites links,copies,chain,reference,debian \
		-guest $(CURDIR)/$(BIN)/test-uml/outcomes -report $(CURDIR)/docs/project/conformance.md

# RUN is which tests, for some of them: the others' cells of the page stay.
e2e-runtimes: build ## containerd, podman and BuildKit with cnibox, into docs/project/runtimes.md (ten minutes)
	@scripts/setup-runtimes.sh
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test -count=1 -v -timeout 40m ./test/runtimes $(if $(RUN),-run '$(RUN)') -args -page $(CURDIR)/docs/project/runtimes.md

# What needs no runtime to be built first.
e2e-runtimes-short: build ## some of it, to see that it works
	@scripts/setup-runtimes.sh
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test -count=1 -v -timeout 40m ./test/runtimes -run '^Test(CRI|Ctr|CtrDetached|Podman|GC.*|Guides|Operator)$$/^(containerd_1.6|podman)$$/^a_container'

soak: setup build ## the agent beside 50,000 calls, and what it puts back at 1, 100 and 1,000 attachments (an hour)
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test -count=1 -v -timeout 2h ./test/agent -args -long

bench: setup build ## measure against the reference plugins into docs/project/benchmarks (a quarter of an hour on a quiet machine)
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/bench -run '^$$' -bench Plugins -benchtime 1x -timeout 2h -args -report $(CURDIR)/docs/project/benchmarks

bench-gc: setup build ## measure GC on a node with up to 5,000 attachments, alone and beside many calls (ten minutes)
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/bench -run '^$$' -bench GC -benchtime 1x -timeout 2h

bench-egress: setup build ## measure ADD, DEL and connections without a list, and beside 1,000 containers with lists of 50 prefixes (ten minutes)
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/bench -run '^$$' -bench Egress -benchtime 1x -timeout 2h

bench-dns: setup build ## measure answers of the agent at 10,000 questions a second beside 64 ADDs, and what a name costs an ADD
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/agent -run '^$$' -bench DNS -benchtime 1x
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/bench -run '^$$' -bench Names -benchtime 1x

# Each part is a process of its own, of ten minutes at most on a quiet machine: MANY says which. A second directory in REPORT is for a second run.
MANY   := cnibox others ptp ptp-10000 bridge macvlan macvlan-10000
REPORT := $(CURDIR)/docs/project/benchmarks
many = CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/bench -run '^$$' -benchtime 1x -timeout 20m -bench
bench-many: setup build $(MANY:%=bench-many-%) ## measure 250 calls at once and up to 10,000 attachments into docs/project/benchmarks/many.md (half an hour)

bench-many-cnibox:
	$(many) Many/many-once -args -report $(REPORT) -plugins cnibox,chain
bench-many-others:
	$(many) Many/many-once -args -report $(REPORT) -plugins reference,netavark
bench-many-%-10000:
	$(many) Many/many-$* -args -report $(REPORT) -attachments 10000
bench-many-%:
	$(many) Many/many-$* -args -report $(REPORT) -attachments 0,1000,4000

bench-etcd: setup build ## measure ADD against etcd and against host-local, up to 60,000 addresses taken (ten minutes)
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/etcd -run '^$$' -bench Add -benchtime 1x -timeout 1h -args -long

bench-short: setup build ## all benchmarks, small, to see that they work
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/bench ./test/bench/report -bench . -benchtime 1x -short
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/etcd -run '^$$' -bench . -benchtime 1x
	CNIBOX_BIN_DIR=$(CURDIR)/$(BIN) go test ./test/agent -run '^$$' -bench DNS -benchtime 1x -short

fuzz: ## run each fuzz test for FUZZTIME
	@scripts/fuzz.sh $(FUZZTIME)

# For a count of inputs: a time limit now and then ends in "context deadline exceeded".
fuzz-short: ## run one of each five fuzz tests for 2,000 inputs
	@scripts/fuzz.sh 2000x 5

fuzz-dns: ## send the agent's resolver a million mutated questions
	go test -count=1 ./pkg/operator/agent/resolver -run '^TestMutated$$' -args -mutated 1000000

test-egress: setup ## 2,000 random lists of egress, and 40,000 packets, against a model; 10,000 names on lists (two minutes)
	go test -count=1 -v ./pkg/netfilter/nft -run '^TestEgressModel$$' -args -lists 2000
	go test -count=1 -v ./test/agent -run '^TestReachMany$$' -args -lookups 10000

schemas: ## write schemas/ and the manual's tables of keys from what the plugins declare
	go test -count=1 ./plugins -run '^(TestSchemas|TestPages)$$' -args -update

messages: ## write what cnictl explain and the manual know of cnibox's own messages and findings, from the source
	go test -count=1 ./cmd/cnictl/internal/cmd/explain -run '^TestOwn$$' -args -update
	go test -count=1 ./pkg/operator/trace -run '^TestPage$$' -args -update

test-messages: ## find each message that cnictl explain knows in the source of who prints it, which is fetched (minutes, some hundred MB)
	go test -count=1 -v ./cmd/cnictl/internal/cmd/explain -run '^TestTextsOfAll$$' -args -fetch

lint: ## gofmt, go vet, staticcheck, and a compiler for 32 bits
	@test -z "$$(gofmt -l cmd pkg plugins scripts test)" || { gofmt -l cmd pkg plugins scripts test; echo "run gofmt -w on these"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	cd scripts/release && go vet ./... && go run $(STATICCHECK) ./...
	go run $(ACTIONLINT) # of .github/workflows
	GOARCH=arm go build -o /dev/null ./cmd/... # where int has 32 bits
	GOARCH=mips64le go build -o /dev/null ./cmd/cnibox # where the number of a device has

dependencies: ## write docs/project/dependencies.md from what is linked, and check the licences
	go test -count=1 ./test/project -run '^TestDependencies$$' -args -update

vulncheck: $(if $(VULNDB),,vulndb) ## look for known vulnerabilities in what we call; VULNDB is the list's URL, if not that of Go's module
	go run $(GOVULNCHECK) -db $(or $(VULNDB),file://$(CURDIR)/$(BIN)/vulndb) ./cmd/...

vulndb: setup ## make the newest list of known vulnerabilities of Go modules into bin/vulndb
	@scripts/vulndb.sh $(BIN)/vulndb

charts: ## draw the benchmarks' pictures and tables anew, from their results.json
	go test -count=1 ./test/bench/report -run '^TestReportIsOfItsResults$$' -args -write

# Its packages come from npm's registry, and only those of the lock file.
site/node_modules: site/package-lock.json
	@scripts/setup-site.sh
	cd site && npm ci
	@touch $@

site: site/node_modules ## build the manual's pages into bin/site
	cd site && npm run --silent build

site-test: setup build site ## look at all pages of bin/site in a browser: links, search, widths, accessibility
	cd site && npm run --silent test

ARCHES ?= amd64 arm64 arm ppc64le s390x riscv64 mips64le

release: build ## build the artefacts of a release for ARCHES into bin/release
	@scripts/release.sh $(ARCHES)

release-check: ## build the artefacts of HEAD twice, and compare them
	@scripts/release-check.sh $(ARCHES)

release-test: setup ## try the artefacts of bin/release
	@scripts/setup-release.sh
	cd scripts/release && go test -count=1 ./...

test-packages: setup build ## try the packages of bin/release in a Debian of their own, and the image with containerd (minutes)
	@scripts/test-packages.sh

# For packages of distributions: which file goes into which package is in dist/debian and dist/rpm.
PLUGINDIR := /usr/lib/cni
ZSHDIR    := /usr/share/zsh/site-functions
install-system: build ## put all that a system has of cnibox into DESTDIR
	@scripts/install-system.sh $(BIN) "$(DESTDIR)" $(PLUGINDIR) $(ZSHDIR)

# No test of it needs root, a network namespace or git.
check-build-root: ## pass the tests that a build root without rights can run
	go test -short $(addprefix ./pkg/,attach cache conf held ipam/... netfilter/spec netns plugin process/request result state) \
		$(addprefix ./pkg/operator/,doctor finding lint metrics netconf node/containers) \
		$(addprefix ./plugins/,. ipam/dhcp ipam/etcd/... ipam/hostlocal ipam/static main/bridge main/hostdevice main/tap meta/bandwidth meta/chain meta/firewall meta/flannel meta/sbr meta/tuning) \
		$(addprefix ./cmd/cnictl/internal/cmd/,lint list newnet probe)

offline-build: ## build from the vendored archive of bin/release without a network, and compare with the release (minutes)
	@scripts/offline-build.sh

install: build ## install the plugins into PREFIX
	$(BIN)/cnictl install --dir $(PREFIX)

uninstall: ## remove what install put into PREFIX
	$(BIN)/cnictl uninstall --dir $(PREFIX)

clean:
	rm -rf $(BIN) site/node_modules
