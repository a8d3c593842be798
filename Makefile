# SPDX-License-Identifier: GPL-2.0-only
# npuwin: driver, runtime and tools. 'make' alone lists the targets.

VERSION := 0.1.0
SOVERSION := 0

PREFIX ?= /usr/local
KDIR ?= $(shell scripts/kdir)

# release, or a build whose tests look for errors of memory (asan) or order (tsan)
FLAVOUR ?= release
out_release := build
out := $(or $(out_$(FLAVOUR)),build/$(FLAVOUR))
obj := build/obj/$(FLAVOUR)

# What 'demo' and 'check' build is not what they show.
quietly := --no-print-directory -s
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

.PHONY: help demo demo-pci check check-host check-guest check-debug driver lib tools lint bench
.PHONY: install uninstall clean distclean tests sanitized
.DELETE_ON_ERROR:
.SECONDARY:

help:
	@echo 'make demo         show a MoE dispatch that crosses ranks and is verified'
	@echo 'make demo-pci     the same between two guests with emulated PCI devices'
	@echo 'make check        run every test: check-host, then check-guest'
	@echo 'make check-host   unit, conformance and CLI tests; the first two with sanitizers'
	@echo 'make check-guest  the driver and its tests under a kernel in QEMU'
	@echo 'make check-debug  the same under a kernel with KASAN and lockdep, which it builds'
	@echo 'make driver       the kernel module, driver/npuwin.ko (KDIR=kernel build tree)'
	@echo 'make lib          the runtime, build/lib/libnpuwin.so'
	@echo 'make tools        the command line and the device emulator, build/bin/'
	@echo 'make lint         style and static analysis, at zero findings'
	@echo 'make bench        measure: against Open MPI, and the driver in a guest'
	@echo 'make install      install all but the module (PREFIX=$(PREFIX), DESTDIR=,'
	@echo '                  UDEVDIR=$(UDEVDIR))'
	@echo 'make uninstall    remove what install put there'
	@echo 'make clean        remove what was built (distclean: what was fetched, too)'

# --- Compiling -------------------------------------------------------------

CFLAGS ?= -O2 -g
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wundef -Wvla -Wformat=2 \
	-Wpointer-arith -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes \
	-Wold-style-definition -Wno-unused-parameter -Wno-missing-field-initializers

sanitize_release := -fstack-protector-strong -D_FORTIFY_SOURCE=2
sanitize_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
# It takes no note of fences, which is no harm where they order atomics.
sanitize_tsan := -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan
sanitize_fuzz := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all

flags := -std=gnu11 $(WARNINGS) -pthread -D_GNU_SOURCE \
	-DNPUWIN_VERSION_STRING='"$(VERSION)"' -Iuapi -Ilibruntime -Idriver \
	$(sanitize_$(FLAVOUR))
ldflags := -pthread -Wl,-z,now $(sanitize_$(FLAVOUR)) $(LDFLAGS)
compile = $(CC) $(flags) $(CFLAGS) $(CPPFLAGS) $(cflags) -MMD -MP -c $< -o $@

# Programs find the library beside them, here and where they are installed.
with_lib = -L$(out)/lib -lnpuwin -Wl,-rpath,'$$ORIGIN/../lib'

$(obj)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(compile)

-include $(shell find $(obj) -name '*.d' 2>/dev/null)

# For the tools of 'make lint', which compile by themselves.
.PHONY: print-flags
print-flags:
	@echo $(flags) -isystem build/kselftest

objects = $(patsubst %.c,$(obj)/%.o,$(wildcard $(1)))

# --- The runtime -----------------------------------------------------------

lib_obj := $(call objects,libruntime/*.c driver/engine.c)
soname := libnpuwin.so.$(SOVERSION)
lib_real := $(out)/lib/libnpuwin.so.$(VERSION)
lib_link := $(out)/lib/libnpuwin.so
lib_static := $(out)/lib/libnpuwin.a
lib_libs := -lsodium

lib: $(lib_link) $(lib_static)

$(lib_obj): cflags = -fPIC -fvisibility=hidden

$(lib_real): $(lib_obj) libruntime/libnpuwin.map
	@mkdir -p $(@D)
	$(CC) -shared -Wl,-soname,$(soname) -Wl,--version-script,libruntime/libnpuwin.map \
		-o $@ $(lib_obj) $(lib_libs) $(ldflags)

$(lib_link): $(lib_real)
	ln -sf $(notdir $<) $(out)/lib/$(soname)
	ln -sf $(soname) $@

$(lib_static): $(lib_obj)
	@mkdir -p $(@D)
	rm -f $@
	$(AR) rcs $@ $^

# --- The tools -------------------------------------------------------------

# Of each program: its objects and the libraries it needs beside libnpuwin.
programs := npuwin npuwin-emu
npuwin_obj := $(call objects,tools/*.c)
npuwin_libs := -ljson-c
npuwin-emu_obj := $(call objects,tools/emu/*.c driver/engine.c)

tools: $(programs:%=$(out)/bin/%)

.SECONDEXPANSION:
$(programs:%=$(out)/bin/%): $(out)/bin/%: $$(%_obj) $(lib_link)
	@mkdir -p $(@D)
	$(CC) -o $@ $($*_obj) $(with_lib) $($*_libs) $(ldflags)

# The device is not a user of the library.
$(out)/bin/npuwin-emu: with_lib =

# Neither make nor Kbuild can tell a path with white space from two.
one_word = $(if $(word 2,$($1)),$(error $1 must not have white space: '$($1)'))

# --- The kernel module -----------------------------------------------------

driver:
	$(call one_word,CURDIR)
	@test -n '$(KDIR)' || { echo 'no kernel headers: scripts/setup driver'; exit 1; }
	$(MAKE) -C $(KDIR) M=$(CURDIR)/driver modules

# --- Test programs ---------------------------------------------------------

kselftest := build/kselftest
tests := $(out)/tests
unit := $(patsubst selftests/unit/%.c,$(tests)/unit/%,$(wildcard selftests/unit/*.c))
conformance := $(addprefix $(tests)/,$(if $(wildcard selftests/conformance/*.c),conformance))
uapi := $(patsubst selftests/uapi/%.c,$(tests)/uapi/%,$(wildcard selftests/uapi/*.c))
hw := $(addprefix $(tests)/,$(if $(wildcard selftests/hw/*.c),hw))
faults := $(patsubst selftests/faults/%.c,$(tests)/faults/%,$(wildcard selftests/faults/*.c))

tests: $(unit) $(conformance) $(uapi) $(hw) $(faults)

# The sanitizers look at what the library does; the uAPI has no library in it.
sanitized:
	$(MAKE) $(quietly) FLAVOUR=asan build/asan/.tests
	$(MAKE) $(quietly) FLAVOUR=tsan build/tsan/.tests

$(out)/.tests: $(unit) $(conformance) $(hw)
	touch $@

# lib.mk looks for the tests' settings in a folder beside itself.
$(kselftest)/lib.mk: scripts/kernel-source
	rm -rf $(@D)
	mkdir -p $(@D)
	cp -r "$$(scripts/kernel-source)"/tools/testing/selftests/* $(@D)
	ln -s ../../selftests $(@D)/npuwin
	touch $@

test_obj := $(call objects,selftests/unit/*.c selftests/conformance/*.c selftests/uapi/*.c)
$(test_obj): cflags = -isystem $(kselftest)
$(test_obj): | $(kselftest)/lib.mk

$(tests)/unit/%: $(obj)/selftests/unit/%.o $(lib_static)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ -lcmocka $(lib_libs) $(ldflags)

$(tests)/conformance: $(call objects,selftests/conformance/*.c) $(lib_link)
	@mkdir -p $(@D)
	$(CC) -o $@ $(filter %.o,$^) $(with_lib) $(ldflags)

$(tests)/uapi/%: $(obj)/selftests/uapi/%.o
	@mkdir -p $(@D)
	$(CC) -o $@ $< $(ldflags)

$(tests)/faults/%: $(obj)/selftests/faults/%.o $(lib_static)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(lib_libs) $(ldflags)

$(tests)/hw: $(call objects,selftests/hw/*.c) | $(out)/bin/npuwin-emu
	@mkdir -p $(@D)
	$(CC) -o $@ $^ $(ldflags)

# libFuzzer is clang's. Run by selftests/fuzz/run.sh.
.PHONY: fuzz
fuzz:
	$(MAKE) $(quietly) FLAVOUR=fuzz CC=clang \
		$(addprefix build/fuzz/fuzz_,emu bootstrap driver)

$(out)/fuzz_emu: $(call objects,selftests/fuzz/fuzz_emu.c driver/engine.c) \
		$(filter-out %/main.o %/server.o,$(call objects,tools/emu/*.c))
	@mkdir -p $(@D)
	$(CC) -o $@ $^ -fsanitize=fuzzer $(ldflags)

$(out)/fuzz_bootstrap: $(call objects,selftests/fuzz/fuzz_bootstrap.c) $(lib_static)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ -fsanitize=fuzzer $(lib_libs) $(ldflags)

$(out)/fuzz_driver: $(call objects,selftests/fuzz/fuzz_driver.c driver/pci_check.c)
	@mkdir -p $(@D)
	$(CC) -o $@ $^ -fsanitize=fuzzer $(ldflags)

# --- Checking --------------------------------------------------------------

demo:
	scripts/setup build
	@echo 'building the library and the command...'
	@$(MAKE) $(quietly) lib tools
	scripts/demo

demo-pci:
	scripts/setup build driver guest
	@echo 'building the library, the commands and the driver...'
	@$(MAKE) $(quietly) lib tools driver
	scripts/demo-pci

check:
	scripts/setup build driver guest test
	$(MAKE) $(quietly) lib tools tests sanitized fuzz driver
	scripts/run-tests host guest

check-host:
	scripts/setup build test
	$(MAKE) $(quietly) lib tools tests sanitized fuzz
	scripts/run-tests host

check-guest:
	scripts/setup build driver guest test
	$(MAKE) $(quietly) lib tools tests driver
	scripts/run-tests guest

check-debug:
	scripts/setup build driver guest test debug
	$(MAKE) $(quietly) lib tools tests
	scripts/run-tests debug

lint:
	scripts/setup build driver test lint
	scripts/lint

bench:
	scripts/setup build driver guest test bench
	$(MAKE) $(quietly) lib driver
	scripts/bench

# --- Installing ------------------------------------------------------------

bindir := $(PREFIX)/bin
libdir := $(PREFIX)/lib
includedir := $(PREFIX)/include
mandir := $(PREFIX)/share/man
srcdir := $(PREFIX)/src/npuwin-$(VERSION)
# Where udev looks. A prefix of one's own has the rule below it, for root to copy.
UDEVDIR ?= $(if $(DESTDIR)$(filter /usr /usr/local,$(PREFIX)),,$(PREFIX))/lib/udev/rules.d

headers := libruntime/npuwin.h $(wildcard uapi/*.h)
man1 := $(wildcard Documentation/man/*.1)
man3 := $(wildcard Documentation/man/*.3)
module_src := $(filter-out %.mod.c,$(wildcard driver/*.c driver/*.h driver/Kbuild))

installed := $(programs:%=$(bindir)/%) \
	$(addprefix $(libdir)/,$(notdir $(lib_real)) $(soname) libnpuwin.so pkgconfig/npuwin.pc) \
	$(addprefix $(includedir)/,$(notdir $(headers))) \
	$(addprefix $(mandir)/man1/,$(notdir $(man1))) \
	$(addprefix $(mandir)/man3/,$(notdir $(man3))) \
	$(UDEVDIR)/60-npuwin.rules
folders := $(bindir) $(libdir)/pkgconfig $(includedir) $(mandir)/man1 $(mandir)/man3 $(UDEVDIR) \
	$(srcdir)/driver $(srcdir)/uapi
# The folders that were not there before, for uninstall.
made := $(DESTDIR)$(srcdir)/folders
update_cache = $(if $(DESTDIR),,[ "$$(id -u)" -ne 0 ] || ldconfig)

build/npuwin.pc: libruntime/npuwin.pc.in Makefile
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@VERSION@|$(VERSION)|g' $< >$@

# Written whenever the prefix may have changed.
.PHONY: build/npuwin.pc

install: lib tools build/npuwin.pc
	$(call one_word,PREFIX)$(call one_word,DESTDIR)$(call one_word,UDEVDIR)
	$(if $(DESTDIR),install -d $(DESTDIR))
	@new=; for dir in $(folders); do \
		while [ ! -d "$(DESTDIR)$$dir" ]; do \
			new="$$new $$dir"; dir=$$(dirname "$$dir"); \
		done; \
	done; \
	install -d $(addprefix $(DESTDIR),$(folders)) && printf '%s\n' $$new >>$(made)
	install -m 755 $(programs:%=$(out)/bin/%) $(DESTDIR)$(bindir)
	install -m 644 $(lib_real) $(DESTDIR)$(libdir)
	ln -sf $(notdir $(lib_real)) $(DESTDIR)$(libdir)/$(soname)
	ln -sf $(soname) $(DESTDIR)$(libdir)/libnpuwin.so
	install -m 644 build/npuwin.pc $(DESTDIR)$(libdir)/pkgconfig
	install -m 644 $(headers) $(DESTDIR)$(includedir)
	install -m 644 $(man1) $(DESTDIR)$(mandir)/man1
	install -m 644 $(man3) $(DESTDIR)$(mandir)/man3
	install -m 644 driver/60-npuwin.rules $(DESTDIR)$(UDEVDIR)
	install -m 644 $(module_src) $(DESTDIR)$(srcdir)/driver
	install -m 644 $(wildcard uapi/*.h) $(DESTDIR)$(srcdir)/uapi
	sed 's|@VERSION@|$(VERSION)|g' scripts/dkms.conf.in >$(DESTDIR)$(srcdir)/dkms.conf
	$(update_cache)

uninstall:
	$(call one_word,PREFIX)$(call one_word,DESTDIR)$(call one_word,UDEVDIR)
	rm -f $(addprefix $(DESTDIR),$(installed))
	@made=$$(LC_ALL=C sort -ru $(made) 2>/dev/null); rm -rf $(DESTDIR)$(srcdir); \
	for dir in $$made; do rmdir "$(DESTDIR)$$dir" 2>/dev/null || true; done
	$(update_cache)

clean:
	find build -mindepth 1 -maxdepth 1 ! -name cache -exec rm -rf {} + 2>/dev/null || true
	find driver \( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' \
		-o -name '.*.cmd' -o -name Module.symvers -o -name modules.order \) -delete

distclean: clean
	rm -rf build
