#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""scripts/setup: what it installs, and what it says where it can not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import TOP, Tests  # noqa: E402

NOBODY = 65534
BUILD = ["gcc", "libc6-dev", "libjson-c-dev", "libsodium-dev", "make", "pkg-config"]

tests = Tests()


def stub(directory, name, text):
    path = directory / "bin" / name
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


class Machine:
    """On which @installed is what dpkg knows; apt-get only writes down what it was asked."""

    def __init__(self, directory, installed=(), root=False, apt_status="0"):
        self.asked = directory / "asked"
        self.asked.touch()
        self.setup = directory / "setup"
        shutil.copy(TOP / "scripts/setup", self.setup)
        (directory / "bin").mkdir()
        for path in (directory, directory / "bin", self.setup):
            path.chmod(0o755)
        for name in ("bash", "cat", "id"):
            (directory / "bin" / name).symlink_to(shutil.which(name))
        if root:
            (directory / "bin/id").unlink()
            stub(directory, "id", "echo 0\n")
        stub(directory, "dpkg-query", "cat <<'END'\n" + "".join(
            f"{name} installed\n" for name in installed) + "gone config-files\nEND\n")
        stub(directory, "apt-get", f'echo "$@" >>{self.asked}\nexit {apt_status}\n')
        self.asked.chmod(0o666)
        self.env = {"PATH": str(directory / "bin")}
        # In which only root would be told apart.
        self.user = NOBODY if os.geteuid() == 0 and not root else None

    def run(self, *args):
        return subprocess.run([self.setup, *args], env=self.env, text=True, check=False,
                              capture_output=True, stdin=subprocess.DEVNULL, user=self.user,
                              cwd=self.setup.parent)

    def calls(self):
        return self.asked.read_text().splitlines()


@tests("setup without root says what is missing and how to go on")
def not_root(directory):
    machine = Machine(directory, BUILD[1:])
    done = machine.run("build")
    assert done.returncode == 1, done
    assert done.stdout == "setup: to compile the library and the tools: gcc\n", done
    assert done.stderr == f"setup: installing needs root: sudo {machine.setup} build\n", done
    assert not machine.calls()


@tests("setup takes a package whose configuration is left for missing")
def removed(directory):
    machine = Machine(directory, BUILD[1:])
    (directory / "bin/dpkg-query").write_text(
        "#!/bin/bash\ncat <<'END'\n" + "".join(f"{name} installed\n" for name in BUILD[1:])
        + "gcc config-files\nEND\n")
    done = machine.run("build")
    assert done.returncode == 1 and done.stdout.endswith(": gcc\n"), done


@tests("setup with nothing to do does nothing, and needs no root")
def nothing(directory):
    machine = Machine(directory, BUILD)
    done = machine.run("build")
    assert done.returncode == 0 and not done.stdout and not done.stderr, done
    assert not machine.calls()


def no_debian(directory, program):
    machine = Machine(directory, BUILD)
    (directory / "bin" / program).unlink()
    done = machine.run("build")
    assert done.returncode == 1 and not done.stdout, done
    lines = done.stderr.splitlines()
    assert lines[0] == "setup: this is not a Debian system; install by other means:", done
    assert lines[1].split() == "build compile the library and the tools".split(), done
    assert lines[2].split() == BUILD, done
    assert not machine.calls()


for _program in ("dpkg-query", "apt-get"):
    tests.add(f"setup where there is no {_program} says what to install by other means", no_debian,
              _program)


@tests("setup of an unknown group says which there are")
def unknown(directory):
    machine = Machine(directory, BUILD)
    done = machine.run("build", "everything")
    assert done.returncode == 2 and not done.stdout, done
    assert done.stderr == "setup: unknown group 'everything'; there are: " \
        "build driver guest test lint bench debug\n", done
    assert not machine.calls()


def asked(words, *packages):
    return " ".join(["-q -y -o DPkg::Lock::Timeout=600", words, *packages])


@tests("setup installs what is missing, and no more")
def missing(directory):
    machine = Machine(directory, BUILD[2:], root=True)
    done = machine.run("build")
    assert done.returncode == 0, done
    assert machine.calls() == [asked("install --no-install-recommends", *BUILD[:2])]


@tests("setup fetches the package lists where it can not install, and tries again")
def again(directory):
    machine = Machine(directory, BUILD[1:], root=True,
                      apt_status=f"$(($(wc -l <{directory}/asked) < 2))")
    (directory / "bin/wc").symlink_to(shutil.which("wc"))
    done = machine.run("build")
    assert done.returncode == 0, done
    assert machine.calls() == [asked("install --no-install-recommends", "gcc"), asked("update"),
                               asked("install --no-install-recommends", "gcc")]


@tests("setup that can not install fails")
def failing(directory):
    machine = Machine(directory, BUILD[1:], root=True, apt_status="100")
    assert machine.run("build").returncode == 100
    assert machine.calls() == [asked("install --no-install-recommends", "gcc"), asked("update")]


@tests("setup --list tells the packages of each group, and installs nothing")
def listing(directory):
    machine = Machine(directory)
    done = machine.run("--list")
    assert done.returncode == 0 and not done.stderr, done
    assert [line.split() for line in done.stdout.splitlines()][1] == BUILD, done
    assert not machine.calls()


tests.run()
