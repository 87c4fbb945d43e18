# Cairn: build, test and measure. `make help` lists the targets.
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X github.com/cairnstate/cairn/internal/cli.version=$(VERSION)
PREFIX   ?= /usr/local
GO       ?= go
FUZZTIME ?= 20s

export CGO_ENABLED = 0

.PHONY: help build install deps demo test check bench soak fuzz generate clean

help:      ## list the targets
	@sed -n 's/^\([a-z]*\): *\(.*\)## /\1\t/p' Makefile | expand -t 12

build:     ## build bin/cairn
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/cairn ./cmd/cairn

install: build ## put cairn on the path (PREFIX=/usr/local)
	install -D -m 0755 bin/cairn $(DESTDIR)$(PREFIX)/bin/cairn

deps:      ## install what the tests need, or list what is missing
	tests/deps.sh

demo: build ## show a session and a workspace resumed in another sandbox
	tests/demo/demo.sh bin/cairn

check:     ## the quick part: lint and unit tests, with Go and git only
	SKIP="$(SKIP) s3 postgres signers clients" $(GO) test -count=1 ./api/... ./cmd/... ./internal/... ./sdk/... ./tests/seed ./tests/git

test: deps build ## everything, against real PostgreSQL, S3 and clients
	tests/run.sh

bench: build ## measure beside git http-backend; JSON in bench/results
	$(GO) run ./bench $(BENCH)

soak:      ## long runs: crashes, faults, concurrency
	CAIRN_SOAK=1 $(GO) test -count=1 -timeout 4h -run 'Soak|Crash|Hostile|Random|Generated|Histor|Power|Fault|Model|Linear|LikeGit|EqualsGit|Races|Isolation|OneChange|TakesAsLong|Busy' ./internal/... ./tests/...

fuzz:      ## every fuzz target for FUZZTIME
	tests/fuzz.sh $(FUZZTIME)

generate:  ## write the generated references
	$(GO) test -count=1 ./internal/cli -run TestReference -update
	$(GO) test -count=1 ./internal/rest -run TestOpenAPI$$ -update

clean:     ## remove what was built
	rm -rf bin
