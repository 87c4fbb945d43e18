#!/usr/bin/env bash
# Runs every fuzz target for the time given (20s by default), one after another.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
time=${1:-20s}
failed=()
count=0
while IFS=: read -r file target; do
	count=$((count + 1))
	echo "$target in ${file%/*}"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./${file%/*}" || failed+=("$target in ${file%/*}")
done < <(grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd internal sdk tests | sed -E 's/:[0-9]+:func /:/')
if [ ${#failed[@]} -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
echo "$count fuzz targets ran for $time each"
