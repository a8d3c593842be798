#!/bin/bash
# SPDX-License-Identifier: MIT
# Build the fuzzers, run them for a while, and say as TAP whether one has found something.
#
# usage: selftests/fuzz/run.sh [SECONDS]
#
# SECONDS is for each (default 15; 3 under NPUWIN_TEST_SHORT).
# What they learn is kept in build/fuzz/corpus-NAME; an input that breaks something is
# left in build/fuzz, to be run again by: build/fuzz/fuzz_NAME FILE
set -euo pipefail
shopt -s nullglob

cd "$(dirname "$0")/../.."
seconds=${1:-${NPUWIN_TEST_SHORT:+3}}
seconds=${seconds:-15}

if ! command -v clang >/dev/null; then
	echo "1..0 # SKIP clang is not there: scripts/setup test"
	exit 4
fi
# What is fuzzed must not be the program of some time ago.
if ! env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s fuzz; then
	echo "Bail out! 'make fuzz' failed"
	exit 1
fi
fuzzers=(build/fuzz/fuzz_*)

echo "1..${#fuzzers[@]}"
n=0
failed=0
for fuzzer in "${fuzzers[@]}"; do
	[[ -x $fuzzer ]] || continue
	name=${fuzzer##*/fuzz_}
	corpus=build/fuzz/corpus-$name
	seeds=build/fuzz/seeds-$name
	mkdir -p "$corpus"
	"selftests/fuzz/${name}_seeds.py" "$seeds"
	if "$fuzzer" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
		-artifact_prefix="build/fuzz/found-$name-" "$corpus" "$seeds" \
		>"build/fuzz/$name.log" 2>&1; then
		result=ok
	else
		result='not ok'
		failed=1
		sed 's/^/# /' "build/fuzz/$name.log" | tail -n 60
	fi
	echo "$result $((++n)) - fuzz_$name: $(tail -n 1 "build/fuzz/$name.log")"
done
exit "$failed"
