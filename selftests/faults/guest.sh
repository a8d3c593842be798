#!/bin/bash
# SPDX-License-Identifier: MIT
# What scripts of these tests do in a guest; lib/machines.py runs them. The folder that they
# are in has in.npy and counts.npy, for four ranks.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/guest-functions
. "$top/scripts/guest-functions"

# Bounds what takes a second or two on an idle machine: beyond it, something hangs.
bound=180

# mark NAME: tell the test how far this is.
mark() {
	echo "@$1"
}

# told NAME: whether the test has said so.
told() {
	[[ -e told.$1 ]]
}

fail() {
	echo "not as it must be: $*"
	grep . /sys/class/npuwin/*/state
	dmesg | sed -n '/npuwin: loading/,$p'
	exit 1
}

# within COMMAND...: poll until it succeeds.
within() {
	local end=$((SECONDS + bound))

	until "$@"; do
		((SECONDS < end)) || fail "not within $bound s: $*"
		sleep 0.05
	done
}

device_count() {
	[[ $(find /dev -maxdepth 1 -name 'npuwin[0-9]*' | wc -l) -eq $1 ]]
}

# load N: load the module; N devices appear.
load() {
	insmod "$module" || fail "the module does not load"
	within device_count "$1"
}

# ready N: device N works.
ready() {
	[[ $(<"/sys/class/npuwin/npuwin$1/state") == ready ]]
}

# failed N: device N does not work, nor will it.
failed() {
	[[ $(<"/sys/class/npuwin/npuwin$1/state") == failed ]]
}

# stat NAME N: a counter of device N.
stat_of() {
	cat "/sys/class/npuwin/npuwin$2/stats/$1"
}

# reset_device N: have device N reset.
reset_device() {
	echo 1 >"/sys/class/npuwin/npuwin$1/reset"
}

# exchange [OPTION]...: a dispatch whose bytes are compared. It must end, in some way.
exchange() {
	said=$(timeout -k 5 "$bound" "$top/build/bin/npuwin" a2av --ranks 4 --provider dev \
		--input in.npy --counts counts.npy --output /tmp/out.npy \
		--recv-counts /tmp/recv.npy --quiet --timeout 60 "$@" 2>&1)
	local status=$?

	[[ -z $said ]] || echo "$said"
	((status < 124)) || fail "exchange: exit status $status"
	return $status
}

# correct [OPTION]...: one that must succeed.
correct() {
	exchange "$@" || fail "exchange: exit status $?"
}

# broken PATTERN [OPTION]...: one that must end in an error, and say what PATTERN matches.
broken() {
	local pattern=$1

	shift
	exchange --iterations 10000000 "$@" && fail "an exchange that cannot end ended"
	[[ $said =~ $pattern ]] || fail "said is not $pattern"
}

# farewell: nothing is left, and the module goes.
farewell() {
	within unused_devices
	unload_module || fail "the module does not unload"
	quiet_dmesg '' || fail "the kernel complains"
}

# busy N PATTERN [OPTION]...: start a run that must end in an error that PATTERN matches, and wait
# until device N is at work. Its process is $job.
busy() {
	local device=$1 before

	shift
	before=$(stat_of descriptors "$device")
	broken "$@" &
	job=$!
	within worked "$device" "$((before + 500))"
}

worked() {
	(($(stat_of descriptors "$1") > $2))
}

# ended: the run that busy has started ends as it must.
ended() {
	wait "$job" || exit 1
}

# name_of N: what device N is called on its bus.
name_of() {
	cat "/sys/class/npuwin/npuwin$1/name"
}
