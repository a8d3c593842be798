#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""npuwin's help, versions, list, info, doctor and the demo."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import NPUWIN, PROVIDERS, TOP, Skip, Tests, npuwin, succeed  # noqa: E402

COMMANDS = ("list", "info", "a2av", "moe", "doctor")

tests = Tests()


def help_of(_, command):
    result = succeed(command, "--help")
    assert re.search(rf"\nExample:\n  npuwin {command}\b", result.out), result
    for part in ("Usage: npuwin " + command, "Options:", "--json", "Exit codes:"):
        assert part in result.out, result
    assert succeed("help", command).out == result.out
    assert all(len(line) <= 100 for line in result.out.splitlines()), result


for _command in COMMANDS:
    tests.add(f"{_command} --help has a usage, options, exit codes and an example", help_of,
              _command)


@tests("--help names every command")
def program_help(_):
    result = succeed("--help")
    for command in COMMANDS:
        assert re.search(rf"^  {command}\s", result.out, re.MULTILINE), result
    assert succeed("help").out == result.out
    assert npuwin().code == 2


@tests("--version is the version")
def version(_):
    assert re.fullmatch(r"npuwin \d+\.\d+\.\d+\n", succeed("--version").out)


def man_page(_, command):
    """A page names each option of the command, and no others."""
    page = TOP / f"Documentation/man/npuwin-{command}.1"
    if not page.exists():
        raise Skip("the manual is not there")
    options = set(re.findall(r"^  --([a-z-]+)", succeed(command, "--help").out, re.MULTILINE))
    named = set(re.findall(r"^\.It Fl -([a-z-]+)", page.read_text(encoding="utf-8"),
                           re.MULTILINE))
    assert options == named, (options ^ named)


for _command in COMMANDS:
    tests.add(f"the manual of {_command} has its options", man_page, _command)


def list_devices(_, provider):
    told = succeed("list", "--provider", provider, "--json").json()
    assert told["command"] == "list", told
    assert told["provider"] == provider and told["provider_reason"], told
    for device in told["devices"]:
        for key in ("name", "backend", "numa_node", "memory_total", "memory_used"):
            assert key in device, key
        assert device["name"] in succeed("list", "--provider", provider).out
    assert told["devices"]


def info_device(_, provider):
    first = succeed("list", "--provider", provider, "--json").json()["devices"][0]
    for name in (first["name"], "/dev/" + first["name"], str(first["index"])):
        told = succeed("info", name, "--provider", provider, "--json").json()
        assert [device["name"] for device in told["devices"]] == [first["name"]], told
    attributes = told["devices"][0]["attributes"]
    if provider == "dev":
        assert "stats" in attributes and "errors" in attributes, attributes
    text = succeed("info", "--provider", provider).out
    for part in (first["name"], first["backend"], "window memory"):
        assert part in text, text


for _provider in PROVIDERS:
    tests.add(f"list tells of the devices of {_provider}", list_devices, _provider)
    tests.add(f"info tells of a device of {_provider}", info_device, _provider)


@tests("NPUWIN_PROVIDER chooses the provider")
def environment(_):
    told = succeed("list", "--json", env={"NPUWIN_PROVIDER": "shm"}).json()
    assert told["provider"] == "shm" and "NPUWIN_PROVIDER" in told["provider_reason"], told


@tests("doctor tells what is missing and what to do about it")
def doctor(_):
    result = npuwin("doctor", "--json")
    told = result.json()
    assert result.code == (0 if told["usable"] else 1), result
    assert told["usable"] == ("dev" in PROVIDERS), told
    states = {check["check"]: check["state"] for check in told["checks"]}
    assert set(states.values()) <= {"ok", "missing", "note"}, states
    for check in told["checks"]:
        assert check["found"] and bool(check["remedy"]) == (check["state"] != "ok"), check
    for name in ("kernel", "headers", "built", "loaded", "nodes", "access", "group", "udev",
                 "hugepages", "driver"):
        assert name in states, name
    assert (states["nodes"] == "ok") == os.path.exists("/dev/npuwin0"), states
    assert told["usable"] or "missing" in states.values()


def doctor_kernel(_, wrapper):
    release = subprocess.run([*wrapper, "uname", "-r"], text=True, capture_output=True,
                             check=True).stdout.strip()
    done = subprocess.run([*wrapper, NPUWIN, "doctor", "--json"], text=True, check=False,
                          stdin=subprocess.DEVNULL, capture_output=True)
    kernel = [check for check in json.loads(done.stdout)["checks"]
              if check["check"] == "kernel"][0]
    assert release in kernel["found"], (release, kernel)
    if release.startswith("6.1."):
        assert kernel["state"] == "ok", kernel
        return
    loaded = os.path.exists("/sys/module/npuwin")
    assert kernel["state"] == ("note" if loaded else "missing"), kernel
    assert kernel["found"].endswith(": the driver is written for 6.1"), kernel
    assert "boot Linux 6.1" in kernel["remedy"], kernel


tests.add("doctor tells whether the kernel is the one that the driver is written for",
          doctor_kernel, ())
tests.add("doctor tells that the driver is not written for another kernel", doctor_kernel,
          ("setarch", "--uname-2.6"))


@tests("doctor says the same for people")
def doctor_text(_):
    told = npuwin("doctor", "--json").json()
    text = npuwin("doctor").out
    for check in told["checks"]:
        word = {"ok": "OK", "missing": "MISSING", "note": "NOTE"}[check["state"]]
        assert re.search(rf"^{word} +{check['check']} +{re.escape(check['found'])}$", text,
                         re.MULTILINE), (check, text)
        assert not check["remedy"] or "-> " + check["remedy"] in text, check


@tests("the demo shows a dispatch that is verified")
def demo(_):
    script = TOP / "scripts/demo"
    done = subprocess.run([script], text=True, capture_output=True, check=False,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, NPUWIN=NPUWIN))
    assert done.returncode == 0, done
    matrix = json.loads((TOP / "tools/demo/qwen15-moe-gsm8k-6ranks.json").read_text(
        encoding="ascii"))["count_matrix"]
    for row in matrix:
        assert re.search(r"\s+".join(map(str, row)), done.stdout), done.stdout
    for part in ("verified  every byte", "provider", "source"):
        assert part in done.stdout, done.stdout


tests.run()
