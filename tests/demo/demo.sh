#!/usr/bin/env bash
# Shows Cairn's main job from nothing: a session of one sandbox is resumed in
# another. It starts a development server, tells the story and ends with it.
# Usage: tests/demo/demo.sh PATH-OF-CAIRN
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
CAIRN=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
STAGE=$(mktemp -d)
trap 'rm -rf "$STAGE"' EXIT
export CAIRN STAGE
"$CAIRN" dev --data "$STAGE/data" --listen 127.0.0.1:0 -- "$here/story.sh"
