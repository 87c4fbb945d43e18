#!/usr/bin/env bash
# The story that demo.sh tells. CAIRN_URL, CAIRN_ORG and CAIRN_PRIVATE_KEY come
# from `cairn dev`, CAIRN and STAGE from demo.sh.
set -euo pipefail
project=$(cd "$(dirname "$0")/../.." && pwd)
cd "$STAGE"
export HOME=$STAGE GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
git config --global init.defaultBranch main
git config --global user.name "Agent"
git config --global user.email agent@example.com
git config --global advice.pushUpdateRejected false

step=0
tell() { step=$((step + 1)); printf '\n%2d. %s\n' $step "$*"; }
show() { printf '      %s\n' "$*"; }
die() { echo "the demo failed: $*" >&2; exit 1; }
# refused TEXT COMMAND... runs a command that must fail and print TEXT.
refused() {
	local text=$1; shift
	if "$@" >refusal 2>&1; then die "this should have been refused: $*"; fi
	grep -q "$text" refusal || { cat refusal >&2; die "the refusal does not say \"$text\""; }
	show "refused: $(grep -m1 "$text" refusal | sed 's/^ *//')"
}
# sandbox NAME: clones with the URLs in the environment, as the guide has it.
sandbox() {
	mkdir "$1" && cd "$1"
	{
		git clone --depth 1 --single-branch --no-checkout "$READ_URL" work
		cd work
		git fetch origin "$BASE_SHA"
		git remote set-url --push origin "$WRITE_URL"
		git switch -c "$SESSION_BRANCH" "$BASE_SHA"
	} >"$STAGE/git.log" 2>&1 || { cat "$STAGE/git.log" >&2; die "sandbox $1 could not start"; }
}
# confine SHA: two URLs that confine a sandbox to the session branch.
confine() { eval "$("$CAIRN" url --repo shop --confine sessions/42 --sha "$1" --format sh | grep '^export ')"; }
# tip: what the server has as the session's last commit.
tip() {
	curl -sS -H "Authorization: Bearer $("$CAIRN" token --repo shop)" \
		"$CAIRN_URL/api/repos/shop/branch?name=sessions/42&ephemeral=true" | grep -o '"head_sha": *"[0-9a-f]*"' | grep -o '[0-9a-f]\{40\}'
}

tell "A Cairn server is up, with nothing configured."
show "$CAIRN_URL"

tell "A repository is made, and a team's code is pushed to it."
"$CAIRN" repo create shop >/dev/null
git init -q team && cp -r "$project/cmd" "$project/internal" "$project/sdk" team/
git -C team add . && git -C team commit -q -m "Our code"
git -C team push -q "$("$CAIRN" url --repo shop --scope git:write)" main
main=$(git -C team rev-parse main)
show "shop: $(git -C team ls-files | wc -l) files, main at ${main:0:12}"

tell "Sandbox A gets two URLs: one reads, one can only move the branch sessions/42 forward."
confine "$main"
(sandbox A)
cd "$STAGE/A/work"
show "cloned $(git rev-list --count HEAD) commit, $(git ls-files | wc -l) files"

tell "A's agent works and saves."
echo "Sign-in: the token is read, the refresh is missing." >notes.md
git add notes.md && git commit -q -m "Half of sign-in"
git push -q origin sessions/42 2>"$STAGE/git.log" || { cat "$STAGE/git.log" >&2; die "A could not save"; }
saved=$(git rev-parse HEAD)
show "sessions/42 is at ${saved:0:12}"

tell "A stray push to main is refused; the credential cannot do it."
refused "denied by policy" git push origin "HEAD:refs/heads/main"

tell "A dies. All that was in it is gone."
mv "$STAGE/A" "$STAGE/frozen"
cd "$STAGE"

tell "Sandbox B asks for the last saved state, and continues from it with URLs of its own."
from=$(tip)
[ "$from" = "$saved" ] || die "the server has $from, A saved $saved"
confine "$from"
(sandbox B)
cd "$STAGE/B/work"
show "notes.md: $(cat notes.md)"
echo "The refresh is there too." >>notes.md
git commit -q -a -m "The other half of sign-in"
git push -q origin sessions/42 2>"$STAGE/git.log" || { cat "$STAGE/git.log" >&2; die "B could not save"; }
continued=$(git rev-parse HEAD)
show "sessions/42 is at ${continued:0:12}"

tell "A's machine wakes up with its old checkout and saves: too late."
cd "$STAGE/frozen/work"
echo "Sign-in: start over." >notes.md
git commit -q -a -m "A goes on from the past"
refused "rejected" git push origin sessions/42
refused "denied by policy" git push --force origin sessions/42

tell "The same through the commit API, with the commit A knew as the expected head."
{
	printf '{"metadata":{"target_branch":"sessions/42","ephemeral":true,"expected_head_sha":"%s",' "$saved"
	printf '"commit_message":"A goes on from the past","author":{"name":"Agent","email":"agent@example.com"},'
	printf '"files":[{"path":"notes.md","content_id":"1"}]}}\n'
	printf '{"blob_chunk":{"content_id":"1","data":"%s","eof":true}}\n' "$(base64 -w0 notes.md)"
} >commit.ndjson
status=$(curl -sS -o answer.json -w '%{http_code}' --data-binary @commit.ndjson -H 'Content-Type: application/x-ndjson' \
	-H "Authorization: Bearer $("$CAIRN" token --repo shop --scope git:write)" "$CAIRN_URL/api/repos/shop/commit-pack")
[ "$status" = 409 ] && grep -q precondition_failed answer.json || die "the API answered $status $(cat answer.json)"
show "refused: $status precondition_failed"

tell "Nothing of B's work is lost, and main is as it was."
[ "$(tip)" = "$continued" ] || die "the session moved"
[ "$(git -C "$STAGE/team" ls-remote "$("$CAIRN" url --repo shop)" refs/heads/main | cut -f1)" = "$main" ] || die "main moved"
git -C "$STAGE/B/work" log --format='      %h %s' -2

# The second part: a whole workspace, with what Git does not keep.
# cairn_in SANDBOX COMMAND... runs the program as a sandbox does: with a token for
# its thread, and a home of its own.
cairn_in() {
	local home=$STAGE/$1; shift
	env -u CAIRN_PRIVATE_KEY CAIRN_TOKEN_FILE="$STAGE/thread.token" CAIRN_THREAD=chat-7 HOME="$home" "$CAIRN" "$@"
}
cd "$STAGE"
"$CAIRN" token --thread chat-7 --scope checkpoint:read,checkpoint:write >thread.token
mkdir C D E

tell "Sandbox C has no repository: it saves its workspace as a checkpoint of the thread chat-7, with a token for that thread."
mkdir -p C/workspace && cp -r "$project/internal/tree" C/workspace/src
printf '#!/bin/sh\necho built\n' >C/workspace/build.sh && chmod +x C/workspace/build.sh
echo "Half of the index is written." >C/workspace/notes.md
show "$(cairn_in C capture --root C/workspace --label 'Half of the index')"
show "$(cairn_in C capture --root C/workspace)"

tell "C is removed. Sandbox D restores the thread before its agent runs: the files are back."
mv C frozen-C
show "$(cairn_in D restore --root D/workspace)"
show "notes.md: $(cat D/workspace/notes.md)"
[ "$(D/workspace/build.sh)" = built ] || die "build.sh does not run"
echo "All of the index is written." >D/workspace/notes.md
show "$(cairn_in D capture --root D/workspace)"

tell "C's machine wakes up and captures: its files came from another checkpoint than the head."
mv frozen-C C
echo "The index starts over." >C/workspace/notes.md
status=0
cairn_in C capture --root C/workspace >refusal 2>&1 || status=$?
[ $status = 3 ] || { cat refusal >&2; die "the stale capture ended with status $status"; }
show "refused: $(sed "s|^cairn: ||" refusal)"

tell "Nothing of D's work is lost."
cairn_in E restore --root E/workspace >/dev/null
show "notes.md: $(cat E/workspace/notes.md)"
[ "$(cat E/workspace/notes.md)" = "All of the index is written." ] || die "the head is not D's"
"$CAIRN" checkpoint list --thread chat-7 | sed 's/^/      /'
echo
