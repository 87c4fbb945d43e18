#!/usr/bin/env bash
# Installs what the tests need beside Go and git, into .tools and, as root or with
# a sudo that asks no password, from Debian's packages. It ends with the list of
# what could not be had, and status 1, unless SKIP names it: s3, postgres, signers,
# node, typescript, python, java, or clients for the last four. Quick when everything is there.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
tools=$PWD/.tools
log=$tools/deps.log
missing=()
SKIP=${SKIP:-}
mkdir -p "$tools/bin"
: >"$log"

skipped() {
	case " ${SKIP//,/ } " in *" $1 "*) return 0 ;; esac
	case "$1" in node | typescript | python | java) [[ " ${SKIP//,/ } " == *" clients "* ]] ;; *) return 1 ;; esac
}

# root COMMAND runs a command as root, or fails.
root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi >>"$log" 2>&1
}

updated=
# debian PACKAGE... installs packages.
debian() {
	command -v apt-get >/dev/null || return 1
	if [ -z "$updated" ]; then
		root apt-get update || return 1
		updated=yes
	fi
	echo "installing $* from Debian's packages"
	root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# program NAME PACKAGE makes sure that a program is there.
program() { command -v "$1" >/dev/null || debian "$2" && command -v "$1" >/dev/null; }

# current DIR FILE... says whether DIR was made from FILEs as they are now.
current() { [ "$(cat "$1/made-from" 2>/dev/null)" = "$(cat "${@:2}" | cksum)" ]; }
made() { cat "${@:2}" | cksum >"$1/made-from"; }

signers() { program gpg gnupg && program ssh-keygen openssh-client; }

postgres() {
	have() { compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null; }
	have || debian postgresql || true
	have
}

s3() {
	[ -n "${CAIRN_TEST_VERSITYGW:-}" ] || command -v versitygw >/dev/null || [ -x "$tools/bin/versitygw" ] && return
	echo "building versitygw"
	GOBIN=$tools/bin go install github.com/versity/versitygw/cmd/versitygw@v1.8.0 >>"$log" 2>&1
}

node() {
	local from=tests/clients/node to=$tools/node
	program npm npm || return
	current "$to" $from/package.json $from/package-lock.json && return
	echo "installing the Node clients"
	mkdir -p "$to" && cp $from/package.json $from/package-lock.json "$to" &&
		(cd "$to" && npm ci --ignore-scripts --no-audit --no-fund) >>"$log" 2>&1 &&
		made "$to" $from/package.json $from/package-lock.json
}

typescript() {
	local from=sdk/typescript to=$tools/typescript
	program npm npm || return
	current "$to" $from/package.json $from/package-lock.json && return
	echo "installing what builds and tests the TypeScript adapter"
	mkdir -p "$to" && cp $from/package.json $from/package-lock.json "$to" &&
		(cd "$to" && npm ci --ignore-scripts --no-audit --no-fund) >>"$log" 2>&1 &&
		made "$to" $from/package.json $from/package-lock.json
}

python() {
	local from=tests/clients/python to=$tools/venv
	program python3 python3 || return
	current "$to" $from/requirements.txt && return
	echo "installing the Python clients"
	rm -rf "$to"
	python3 -m venv "$to" >>"$log" 2>&1 || { debian python3-venv && python3 -m venv "$to" >>"$log" 2>&1; } || return
	"$to/bin/pip" install -r $from/requirements.txt >>"$log" 2>&1 && made "$to" $from/requirements.txt
}

java() {
	local from=tests/clients/java to=$tools/java
	program javac default-jdk-headless && program mvn maven || return
	current "$to" $from/pom.xml $from/*.java && return
	echo "installing the Java client"
	rm -rf "$to" && mkdir -p "$to/classes" &&
		mvn -B -q -f $from/pom.xml dependency:copy-dependencies -DoutputDirectory="$to/lib" >>"$log" 2>&1 &&
		javac -cp "$to/lib/*" -d "$to/classes" $from/*.java >>"$log" 2>&1 &&
		made "$to" $from/pom.xml $from/*.java
}

need() {
	local word=$1 what=$2
	if skipped "$word"; then
		echo "not looking for $what: SKIP names it"
	elif ! "$word"; then
		missing+=("$word: $what")
	fi
}

need postgres "a PostgreSQL server (Debian: postgresql)"
need signers "gpg and ssh-keygen (Debian: gnupg, openssh-client)"
need s3 "the S3 server versitygw (go install)"
need node "the npm packages of tests/clients/node (npm)"
need typescript "the npm packages of sdk/typescript (npm, Node.js 20)"
need python "the Python packages of tests/clients/python (python3 with venv)"
need java "the Java packages of tests/clients/java (a JDK and Maven)"

if [ ${#missing[@]} -gt 0 ]; then
	echo "missing for the tests (set SKIP to the words to go on without; the log is .tools/deps.log):" >&2
	printf '  %s\n' "${missing[@]}" >&2
	exit 1
fi
