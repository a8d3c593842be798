#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""make install and uninstall: every file, a program that uses them, and nothing left."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import TOP, Skip, Tests  # noqa: E402

VERSION = re.search(r"^VERSION := (\S+)$", (TOP / "Makefile").read_text(), re.MULTILINE).group(1)
SOURCE = f"src/npuwin-{VERSION}"
RULE = "lib/udev/rules.d/60-npuwin.rules"
NOBODY = 65534
# Of a make that runs this: its jobs and variables are not those of the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PREFIX",
                               "DESTDIR", "UDEVDIR", "FLAVOUR")}

tests = Tests()


def output(*command, cwd=TOP, env=None, user=None):
    done = subprocess.run([str(word) for word in command], cwd=cwd, text=True, check=False,
                          capture_output=True, stdin=subprocess.DEVNULL, user=user, group=user,
                          env={**ENVIRONMENT, **(env or {})})
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def make(*words, **kwargs):
    return output("make", "--no-print-directory", *words, **kwargs)


def names(folder, *patterns):
    return [path.name for pattern in patterns for path in (TOP / folder).glob(pattern)]


def installed():
    """What there has to be below the prefix, but for the rule."""
    lists = {
        "bin": ["npuwin", "npuwin-emu"],
        "lib": ["libnpuwin.so", "libnpuwin.so.0", f"libnpuwin.so.{VERSION}"],
        "lib/pkgconfig": ["npuwin.pc"],
        "include": ["npuwin.h", "npuwin_desc.h", "npuwin_hw.h", "npuwin_ioctl.h"],
        "share/man/man1": names("Documentation/man", "*.1"),
        "share/man/man3": names("Documentation/man", "*.3"),
        SOURCE: ["dkms.conf", "folders"],
        SOURCE + "/driver": [name for name in names("driver", "*.c", "*.h", "Kbuild")
                             if not name.endswith(".mod.c")],
        SOURCE + "/uapi": ["npuwin_desc.h", "npuwin_hw.h", "npuwin_ioctl.h"],
    }
    return {f"{folder}/{name}" for folder, files in lists.items() for name in files}


def found(root):
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def same(got, want):
    assert got == want, f"too many: {sorted(got - want)}; missing: {sorted(want - got)}"


@tests("install into a DESTDIR puts every file there, and uninstall removes all")
def destdir(directory):
    root = directory / "root"
    make("install", f"DESTDIR={root}")
    same(found(root), {f"usr/local/{name}" for name in installed()} | {RULE})
    for path in ("bin/npuwin", "bin/npuwin-emu"):
        assert (root / "usr/local" / path).stat().st_mode & 0o777 == 0o755, path
    make("install", f"DESTDIR={root}")
    make("uninstall", f"DESTDIR={root}")
    assert not list(root.iterdir()), list(root.rglob("*"))


@tests("install into a prefix puts every file there, and uninstall removes all")
def prefix(directory):
    root = directory / "of/mine"
    make("install", f"PREFIX={root}")
    same(found(root), installed() | {RULE})
    make("uninstall", f"PREFIX={root}")
    assert not list(directory.iterdir()), list(directory.rglob("*"))


@tests("install and uninstall refuse a path that is two words")
def two_words(directory):
    (directory / "a").mkdir()
    (directory / "a/kept").touch()
    for goal in ("install", "uninstall"):
        for name in ("DESTDIR", "PREFIX", "UDEVDIR"):
            done = subprocess.run(["make", goal, f"{name}={directory}/a b"], cwd=TOP, text=True,
                                  env=ENVIRONMENT, capture_output=True, check=False)
            assert done.returncode == 2, done
            assert f"{name} must not have white space: '{directory}/a b'" in done.stderr, done
    assert [path.name for path in directory.rglob("*")] == ["a", "kept"]


@tests("uninstall leaves what install has not made")
def others(directory):
    for path in ("usr/bin", "usr/include", "usr/share/man/man3"):
        (directory / path).mkdir(parents=True)
    (directory / "usr/bin/other").touch()
    before = set(directory.rglob("*"))
    make("install", f"DESTDIR={directory}", "PREFIX=/usr")
    (directory / "lib/udev/rules.d/70-other.rules").touch()
    make("uninstall", f"DESTDIR={directory}", "PREFIX=/usr")
    assert found(directory) == {"usr/bin/other", "lib/udev/rules.d/70-other.rules"}
    same({str(path) for path in directory.rglob("*")},
         {str(path) for path in before} | {str(directory / "lib/udev/rules.d/70-other.rules")} |
         {str(directory / path) for path in ("lib", "lib/udev", "lib/udev/rules.d")})


@tests("the rule goes where udev looks, or where it is said")
def rule(directory):
    for words, place in ((["PREFIX=/usr"], "/lib/udev/rules.d"),
                         (["PREFIX=/usr/local"], "/lib/udev/rules.d"),
                         (["PREFIX=/opt/npuwin"], "/opt/npuwin/lib/udev/rules.d"),
                         (["PREFIX=/opt/npuwin", f"DESTDIR={directory}"],
                          f"{directory}/lib/udev/rules.d"),
                         (["PREFIX=/opt/npuwin", "UDEVDIR=/etc/rules"], "/etc/rules")):
        lines = make("-n", "install", *words).splitlines()
        assert f"install -m 644 driver/60-npuwin.rules {place}" in lines, (words, lines)
    make("install", f"DESTDIR={directory}", "UDEVDIR=/etc/rules")
    assert (directory / "etc/rules/60-npuwin.rules").is_file()
    make("uninstall", f"DESTDIR={directory}", "UDEVDIR=/etc/rules")
    assert not list(directory.iterdir()), list(directory.rglob("*"))


def checkout(directory):
    """A copy of the checkout, as it is built, that is its user's."""
    top = directory / "checkout"
    top.mkdir()
    for name in ("Makefile", "Documentation", "driver", "libruntime", "scripts", "tools", "uapi"):
        output("cp", "-a", TOP / name, top)
    (top / "build/obj").mkdir(parents=True)
    for name in ("lib", "bin", "obj/release"):
        output("cp", "-a", TOP / "build" / name, top / "build" / name)
    return top


@tests("install and uninstall below a prefix need no root")
def not_root(directory):
    user = NOBODY if os.geteuid() == 0 else None
    top, root = checkout(directory), directory / "home"
    root.mkdir()
    directory.chmod(0o755)
    if user:
        output("chown", "-R", f"{user}:{user}", top, root)
    make("install", f"PREFIX={root}/x", cwd=top, user=user)
    same(found(root / "x"), installed() | {RULE})
    make("uninstall", f"PREFIX={root}/x", cwd=top, user=user)
    assert not list(root.iterdir()), list(root.rglob("*"))


def build_and_run(directory, root, flags_env, run_env):
    flags = output("pkg-config", "--cflags", "--libs", "npuwin", env=flags_env).split()
    assert flags[0] == f"-I{root}/include" and f"-L{root}/lib" in flags, flags
    program = directory / "dispatch"
    output("cc", "-o", program, TOP / "Documentation/examples/dispatch.c", *flags)
    lines = output(program, env={"NPUWIN_PROVIDER": "shm", **run_env}).splitlines()
    assert lines == [f"from rank {r}: {r + 3} rows of {r + 3}" for r in range(4)], lines
    assert output("pkg-config", "--modversion", "npuwin", env=flags_env).strip() == VERSION


@tests("a program is built by pkg-config from a prefix, and runs")
def program_of_prefix(directory):
    root = directory / "prefix"
    make("install", f"PREFIX={root}")
    build_and_run(directory, root, {"PKG_CONFIG_PATH": f"{root}/lib/pkgconfig"},
                  {"LD_LIBRARY_PATH": f"{root}/lib"})


@tests("a program is built by pkg-config from a DESTDIR, and runs")
def program_of_destdir(directory):
    root = directory / "root"
    make("install", f"DESTDIR={root}", "PREFIX=/opt/npuwin")
    build_and_run(directory, root / "opt/npuwin",
                  {"PKG_CONFIG_SYSROOT_DIR": str(root),
                   "PKG_CONFIG_PATH": f"{root}/opt/npuwin/lib/pkgconfig"},
                  {"LD_LIBRARY_PATH": f"{root}/opt/npuwin/lib"})


@tests("each header compiles by itself")
def headers(directory):
    make("install", f"PREFIX={directory}/p")
    for header in sorted((directory / "p/include").iterdir()):
        source = directory / "one.c"
        source.write_text(f"#include <{header.name}>\n#include <{header.name}>\n")
        output("cc", "-Wall", "-Werror", f"-I{directory}/p/include", "-fsyntax-only", source)


@tests("the commands run from where they are")
def commands(directory):
    make("install", f"PREFIX={directory}/p")
    os.rename(directory / "p", directory / "moved")
    assert VERSION in output(directory / "moved/bin/npuwin", "--version")
    assert "usage" in output(directory / "moved/bin/npuwin-emu", "--help").lower()


@tests("every page of the manual is found")
def manual(directory):
    make("install", f"PREFIX={directory}")
    folder = directory / "share/man"
    for page in folder.rglob("*.[13]"):
        pointer = re.match(r"\.so (\S+)$", page.read_text().splitlines()[-1])
        assert not pointer or (folder / pointer.group(1)).is_file(), page
        if shutil.which("man"):
            path = output("man", "-M", folder, "-w", page.suffix[1:], page.stem).strip()
            assert pathlib.Path(path) == page or pointer, (path, page)
    assert (folder / "man1/npuwin.1").is_file() and (folder / "man3/npuwin_open.3").is_file()


def dkms_conf(tree, kernel, *wanted):
    script = f". {tree}/npuwin/{VERSION}/build/dkms.conf; printf '%s\\n' " + \
        " ".join(f'"${{{name}}}"' for name in wanted)
    return output("bash", "-euc", script, env={
        "kernel_source_dir": kernel, "dkms_tree": str(tree), "module": "npuwin",
        "module_version": VERSION}).splitlines()


@tests("dkms.conf says what dkms needs, and builds the module from what is installed")
def dkms(directory):
    make("install", f"PREFIX={directory}/p")
    build = directory / "dkms/npuwin" / VERSION / "build"
    shutil.copytree(directory / "p" / SOURCE, build)
    assert "@" not in (build / "dkms.conf").read_text()
    kernel = output(TOP / "scripts/kdir").strip()
    name, version, module, location, to, command = dkms_conf(
        directory / "dkms", kernel, "PACKAGE_NAME", "PACKAGE_VERSION", "BUILT_MODULE_NAME[0]",
        "BUILT_MODULE_LOCATION[0]", "DEST_MODULE_LOCATION[0]", "MAKE[0]")
    assert (name, version, module, to) == ("npuwin", VERSION, "npuwin", "/updates/dkms")
    if not kernel:
        raise Skip("no kernel headers to build against")
    output("bash", "-euc", command)
    assert (build / location / "npuwin.ko").is_file()


@tests("make alone lists every target that is for people")
def targets(_):
    listed = re.findall(r"^make (\S+)", make(), re.MULTILINE)
    want = {"demo", "demo-pci", "check", "check-host", "check-guest", "check-debug", "driver",
            "lib", "tools", "lint", "bench", "install", "uninstall", "clean"}
    same(set(listed), want)
    phony = set(re.findall(r"\S+", " ".join(re.findall(
        r"^\.PHONY: (.*)$", (TOP / "Makefile").read_text(), re.MULTILINE)[:2])))
    same(phony - {"help", "distclean", "tests", "sanitized"}, want)


tests.run()
