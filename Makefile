.DEFAULT_GOAL := test
.PHONY: test lint bench benchstat fuzz example

FUZZTIME ?= 10s
TOOL := go tool -modfile=internal/tools/go.mod

# All tests, as CI runs them.
test:
	go test -race -shuffle=on ./...

# The first run builds the linter, which takes some minutes.
lint:
	$(TOOL) golangci-lint run ./...

# The library against twins that lack what it is for, in some 10 minutes; fails when a floor is missed, or without a Postgres.
bench:
	go run ./internal/bench/ratios

# Two outputs of go test -bench: make benchstat OLD=before.txt NEW=after.txt
benchstat:
	$(TOOL) benchstat $(OLD) $(NEW)

# Every fuzz test for FUZZTIME.
fuzz:
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file decl; do \
		echo "$${decl#func } in $$(dirname "$$file")"; \
		go test -run='^$$' -fuzz="^$${decl#func }\$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

# A trace of LLM calls against a limit.
example:
	go run ./examples/replay
