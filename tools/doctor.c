// SPDX-License-Identifier: MIT
/*
 * npuwin doctor: what is missing for the driver on this machine, and what to do about it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <grp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli.h"
#include "json.h"
#include "npuwin.h"

/* The kernel that the driver is written for; what it calls is otherwise in others. */
#define KERNEL_MAJOR	6
#define KERNEL_MINOR	1

static bool json;

static const struct opt opts[] = {
	{ "json", NULL, "print JSON", OPT_FLAG, &json },
	{ NULL }
};

/**
 * enum verdict - What a check found.
 * @GOOD: it is as it must be
 * @MISSING: the driver cannot be used without it
 * @UNUSED: not as it could be, but the driver does without
 */
enum verdict {
	GOOD,
	MISSING,
	UNUSED,
};

static const char *const state_words[] = { "OK", "MISSING", "NOTE" };
static const char *const state_keys[] = { "ok", "missing", "note" };

/** struct finding - Of one check. */
struct finding {
	enum verdict verdict;
	char what[256];
	char remedy[256];
};

/** struct machine - What checks look at more than once. */
struct machine {
	struct utsname uts;
	bool headers;
	bool loaded;
	bool nodes;
	char module[256];
};

static void found(struct finding *f, enum verdict v, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void remedy(struct finding *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void found(struct finding *f, enum verdict v, const char *fmt, ...)
{
	va_list ap;

	f->verdict = v;
	va_start(ap, fmt);
	vsnprintf(f->what, sizeof(f->what), fmt, ap);
	va_end(ap);
}

static void remedy(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->remedy, sizeof(f->remedy), fmt, ap);
	va_end(ap);
}

static bool read_line(const char *path, char *buf, size_t len)
{
	FILE *f = fopen(path, "re");
	bool ok;

	if (!f)
		return false;
	ok = fgets(buf, (int)len, f);
	fclose(f);
	if (ok)
		buf[strcspn(buf, "\n")] = '\0';
	return ok;
}

static bool on_path(const char *program)
{
	const char *path = getenv("PATH");
	char file[512];

	while (path && *path) {
		size_t len = strcspn(path, ":");

		snprintf(file, sizeof(file), "%.*s/%s", (int)len, path, program);
		if (!access(file, X_OK))
			return true;
		path += len + (path[len] == ':');
	}
	return false;
}

static void check_kernel(struct machine *m, struct finding *f)
{
	char *end;
	unsigned long major = strtoul(m->uts.release, &end, 10);
	unsigned long minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;

	if (major == KERNEL_MAJOR && minor == KERNEL_MINOR) {
		found(f, GOOD, "Linux %s on %s", m->uts.release, m->uts.machine);
		return;
	}
	found(f, m->loaded ? UNUSED : MISSING, "Linux %s: the driver is written for %d.%d",
	      m->uts.release, KERNEL_MAJOR, KERNEL_MINOR);
	remedy(f, "boot Linux %d.%d, which is Debian 12's, or use a guest: make check-guest",
	       KERNEL_MAJOR, KERNEL_MINOR);
}

static void check_modules(struct machine *m, struct finding *f)
{
	char line[64] = "";

	(void)m;
	if (access("/proc/modules", F_OK)) {
		found(f, MISSING, "this kernel is built without loadable modules");
		remedy(f, "boot a kernel with CONFIG_MODULES=y, or use a guest: make check-guest");
	} else if (read_line("/proc/sys/kernel/modules_disabled", line, sizeof(line)) &&
		   !strcmp(line, "1")) {
		found(f, MISSING, "loading of modules is switched off until the next boot");
		remedy(f, "boot without kernel.modules_disabled=1");
	} else {
		found(f, GOOD, "the kernel takes modules");
	}
}

static void check_lockdown(struct machine *m, struct finding *f)
{
	char line[128] = "";

	(void)m;
	if (!read_line("/sys/kernel/security/lockdown", line, sizeof(line)) ||
	    strstr(line, "[none]")) {
		found(f, GOOD, "unsigned modules are not locked out");
		return;
	}
	found(f, UNUSED, "the kernel is locked down: it takes signed modules only");
	remedy(f, "sign npuwin.ko with an enrolled key (mokutil), or switch off Secure Boot");
}

/* Whether Debian 12 would have a package for it: 6.1.0-N-FLAVOUR. */
static bool is_debian_release(const char *release)
{
	static const char version[] = "6.1.0-";
	const char *abi = release + sizeof(version) - 1;
	size_t digits;

	if (strncmp(release, version, sizeof(version) - 1))
		return false;
	digits = strspn(abi, "0123456789");
	return digits && abi[digits] == '-';
}

static void check_headers(struct machine *m, struct finding *f)
{
	char path[256];

	snprintf(path, sizeof(path), "/lib/modules/%s/build/Makefile", m->uts.release);
	m->headers = !access(path, F_OK);
	if (m->headers) {
		found(f, GOOD, "headers of this kernel: /lib/modules/%s/build", m->uts.release);
		return;
	}
	found(f, m->loaded ? UNUSED : MISSING, "no headers of this kernel: %s is not there", path);
	if (is_debian_release(m->uts.release))
		remedy(f, "apt-get install linux-headers-%s", m->uts.release);
	else
		remedy(f, "get this kernel's build tree");
}

static void check_compiler(struct machine *m, struct finding *f)
{
	bool gcc = on_path("gcc") || on_path("clang"), make = on_path("make");

	if (gcc && make) {
		found(f, GOOD, "a compiler and make");
		return;
	}
	found(f, m->loaded ? UNUSED : MISSING, "no %s in PATH", gcc ? "make" : "compiler");
	remedy(f, "apt-get install build-essential");
}

/* The "vermagic=" of a module file starts with the release that it was built for. */
static bool module_release(const char *path, char *release, size_t len)
{
	static const char key[] = "vermagic=";
	FILE *f = fopen(path, "re");
	size_t matched = 0;
	int ch;

	if (!f)
		return false;
	while (matched < sizeof(key) - 1 && (ch = getc(f)) != EOF)
		matched = ch == key[matched] ? matched + 1 : ch == key[0];
	for (size_t i = 0; matched == sizeof(key) - 1 && i + 1 < len; i++) {
		ch = getc(f);
		if (ch == EOF || ch == ' ' || !ch) {
			release[i] = '\0';
			fclose(f);
			return i > 0;
		}
		release[i] = (char)ch;
	}
	fclose(f);
	return false;
}

static bool find_module(struct machine *m)
{
	char pattern[256];
	static const char *const places[] = {
		"/lib/modules/%s/updates/dkms/npuwin.ko*",
		"/lib/modules/%s/updates/npuwin.ko*",
		"/lib/modules/%s/extra/npuwin.ko*",
		"/lib/modules/%s/kernel/drivers/*/npuwin.ko*",
	};
	glob_t g;

	if (!access("driver/npuwin.ko", R_OK)) {
		snprintf(m->module, sizeof(m->module), "driver/npuwin.ko");
		return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *tail = places[i] + strlen("/lib/modules/%s");

		snprintf(pattern, sizeof(pattern), "/lib/modules/%s%s", m->uts.release, tail);
		if (!glob(pattern, 0, NULL, &g)) {
			snprintf(m->module, sizeof(m->module), "%s", g.gl_pathv[0]);
			globfree(&g);
			return true;
		}
	}
	return false;
}

static void check_built(struct machine *m, struct finding *f)
{
	char release[128] = "";

	if (!find_module(m)) {
		found(f, m->loaded ? UNUSED : MISSING,
		      "npuwin.ko is neither installed nor in driver/ of this directory");
		remedy(f, "make driver, in the source tree");
		return;
	}
	if (strstr(m->module, ".ko.") || !module_release(m->module, release, sizeof(release)) ||
	    !strcmp(release, m->uts.release)) {
		found(f, GOOD, "the module: %s", m->module);
		return;
	}
	found(f, m->loaded ? UNUSED : MISSING, "%s was built for Linux %s, not for this one",
	      m->module, release);
	remedy(f, "make driver KDIR=/lib/modules/%s/build", m->uts.release);
}

static void check_loaded(struct machine *m, struct finding *f)
{
	if (m->loaded) {
		found(f, GOOD, "the module is loaded");
		return;
	}
	found(f, MISSING, "the module is not loaded");
	remedy(f, "as root: insmod %s soft_devices=8",
	       m->module[0] ? m->module : "driver/npuwin.ko");
}

static void check_nodes(struct machine *m, struct finding *f)
{
	glob_t g;

	m->nodes = !glob("/dev/npuwin[0-9]*", 0, NULL, &g);
	if (m->nodes) {
		found(f, GOOD, "%zu device%s: %s ...", g.gl_pathc, g.gl_pathc > 1 ? "s" : "",
		      g.gl_pathv[0]);
		globfree(&g);
		return;
	}
	found(f, MISSING, "no /dev/npuwin*");
	if (m->loaded)
		remedy(f, "as root: rmmod npuwin; insmod %s soft_devices=8",
		       m->module[0] ? m->module : "driver/npuwin.ko");
	else
		remedy(f, "they come with the module");
}

static void check_access(struct machine *m, struct finding *f)
{
	glob_t g;
	int fd;

	if (!m->nodes || glob("/dev/npuwin[0-9]*", 0, NULL, &g)) {
		found(f, MISSING, "no device that could be opened");
		remedy(f, "load the module first");
		return;
	}
	fd = open(g.gl_pathv[0], O_RDWR | O_CLOEXEC);
	if (fd >= 0) {
		close(fd);
		found(f, GOOD, "this user may open %s", g.gl_pathv[0]);
	} else {
		found(f, MISSING, "cannot open %s: %s", g.gl_pathv[0], strerror(errno));
		remedy(f, "as root: adduser USER render, install the udev rule, log in again");
	}
	globfree(&g);
}

/* A device that has failed is there, and can be opened. */
static void check_states(struct machine *m, struct finding *f)
{
	char line[16];
	glob_t g;

	(void)m;
	if (glob("/sys/class/npuwin/npuwin[0-9]*/state", 0, NULL, &g)) {
		found(f, GOOD, "no device that could be in a failed state");
		return;
	}
	found(f, GOOD, "no device has failed");
	for (size_t i = 0; i < g.gl_pathc; i++) {
		char *path = g.gl_pathv[i];

		if (!read_line(path, line, sizeof(line)) || strcmp(line, "failed"))
			continue;
		found(f, MISSING, "%s is \"failed\"", path);
		remedy(f, "see the kernel's log; as root: echo 1 >%.*s/reset",
		       (int)(strrchr(path, '/') - path), path);
		break;
	}
	globfree(&g);
}

static void check_group(struct machine *m, struct finding *f)
{
	(void)m;
	if (getgrnam("render")) {
		found(f, GOOD, "the group render exists");
		return;
	}
	found(f, UNUSED, "there is no group render: only root may use the devices");
	remedy(f, "as root: addgroup --system render");
}

static bool has_rule(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool found_one = false;

	while (d && (e = readdir(d)))
		found_one |= !fnmatch("*npuwin*.rules", e->d_name, 0);
	if (d)
		closedir(d);
	return found_one;
}

static void check_udev(struct machine *m, struct finding *f)
{
	static const char *const dirs[] = {
		"/etc/udev/rules.d", "/run/udev/rules.d", "/usr/local/lib/udev/rules.d",
		"/usr/lib/udev/rules.d", "/lib/udev/rules.d",
	};

	(void)m;
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		if (has_rule(dirs[i])) {
			found(f, GOOD, "the udev rule is in %s", dirs[i]);
			return;
		}
	}
	found(f, UNUSED, "the udev rule for group and mode is not installed");
	remedy(f, "as root: make install, or cp driver/60-npuwin.rules /etc/udev/rules.d");
}

static void check_huge_pages(struct machine *m, struct finding *f)
{
	char line[128] = "";

	(void)m;
	if (read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)) &&
	    !strstr(line, "[never]")) {
		found(f, GOOD, "transparent huge pages: %s", line);
		return;
	}
	found(f, UNUSED, "transparent huge pages are off: user memory is in small pages");
	remedy(f, "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

static void check_provider(struct machine *m, struct finding *f)
{
	struct npuwin_error err;
	struct npuwin *ctx;

	(void)m;
	if (!npuwin_open("dev", &ctx, &err)) {
		found(f, GOOD, "the driver is usable: %d device%s", npuwin_device_count(ctx),
		      npuwin_device_count(ctx) > 1 ? "s" : "");
		npuwin_close(ctx);
		return;
	}
	found(f, MISSING, "the driver is not usable: %s", err.text);
	remedy(f, "see the lines above; until then everything runs with --provider shm");
}

static const struct {
	const char *name;
	void (*look)(struct machine *m, struct finding *f);
} checks[] = {
	{ "kernel", check_kernel },
	{ "modules", check_modules },
	{ "lockdown", check_lockdown },
	{ "headers", check_headers },
	{ "compiler", check_compiler },
	{ "built", check_built },
	{ "loaded", check_loaded },
	{ "nodes", check_nodes },
	{ "access", check_access },
	{ "state", check_states },
	{ "group", check_group },
	{ "udev", check_udev },
	{ "hugepages", check_huge_pages },
	{ "driver", check_provider },
};

static void print_text(const struct finding *findings)
{
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		const struct finding *f = &findings[i];

		printf("%-8s %-10s %s\n", state_words[f->verdict], checks[i].name, f->what);
		if (f->remedy[0])
			printf("%-8s %-10s -> %s\n", "", "", f->remedy);
	}
}

static void print_json(const struct finding *findings, bool usable)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	json_add_string(o, "command", "doctor");
	json_add_bool(o, "usable", usable);
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		struct json_object *c = json_object_new_object();

		json_add_string(c, "check", checks[i].name);
		json_add_string(c, "state", state_keys[findings[i].verdict]);
		json_add_string(c, "found", findings[i].what);
		json_add_string(c, "remedy", findings[i].remedy);
		json_object_array_add(list, c);
	}
	json_object_object_add(o, "checks", list);
	json_print(o);
}

static int run(int argc, char **argv)
{
	struct finding findings[ARRAY_SIZE(checks)] = { 0 };
	struct machine m = { 0 };
	bool usable;
	int rc = opt_no_arguments(argc, argv);

	if (rc)
		return rc;
	uname(&m.uts);
	m.loaded = !access("/sys/module/npuwin", F_OK);
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
		checks[i].look(&m, &findings[i]);
	usable = findings[ARRAY_SIZE(checks) - 1].verdict == GOOD;
	if (json)
		print_json(findings, usable);
	else
		print_text(findings);
	return usable ? CLI_OK : CLI_FAILED;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.summary = "tell what is missing for the driver on this machine",
	.usage = "[OPTIONS]",
	.text = "Each line is OK, MISSING (the driver cannot be used without it) or NOTE (it\n"
		"does without), and says what to do. The exit code is 0 if the driver is usable,\n"
		"else 1.\n",
	.example = "  npuwin doctor\n",
	.opts = { opts },
	.run = run,
};
