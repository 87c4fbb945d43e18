#!/usr/bin/env bash
# Runs every test once: packages of the product, and the tests that drive the built
# program. SKIP names what is not there (see deps.sh).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
[ -x bin/cairn ] && export CAIRN_BIN=$PWD/bin/cairn
start=$SECONDS
if go test -count=1 -p 2 -timeout 20m ./...; then
	echo "all tests passed in $((SECONDS - start)) s"
else
	status=$?
	echo "tests failed after $((SECONDS - start)) s" >&2
	exit $status
fi
