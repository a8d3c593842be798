// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "npuwin.h"

static const struct command *const commands[] = {
	&cmd_list,
	&cmd_info,
	&cmd_a2av,
	&cmd_moe,
	&cmd_doctor,
};

static int print_program_help(void)
{
	printf("npuwin - NPU windows, and all_to_all_v over them\n\n"
	       "Usage: npuwin COMMAND [OPTIONS]\n"
	       "       npuwin COMMAND --help\n"
	       "       npuwin --help | --version\n\n"
	       "Commands:\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		printf("  %-10s%s\n", commands[i]->name, commands[i]->summary);
	printf("\nWithout the driver all of them but doctor use software NPUs in this process\n"
	       "(provider shm). NPUWIN_PROVIDER=dev or shm in the environment chooses, as the\n"
	       "option --provider does.\n\n"
	       "%s\n"
	       "Example:\n"
	       "  npuwin list\n"
	       "  npuwin moe --ranks 6 --routes routes.npy --experts 60\n",
	       cli_exit_codes());
	return cli_flush(CLI_OK);
}

static int print_help(const struct command *cmd)
{
	printf("npuwin %s - %s\n\nUsage: npuwin %s %s\n\n%s\nOptions:\n", cmd->name, cmd->summary,
	       cmd->name, cmd->usage, cmd->text);
	opt_print((const struct opt *const *)cmd->opts);
	printf("  %-24s  this text\n\n%s\nExample:\n%s", "--help", cli_exit_codes(),
	       cmd->example);
	return cli_flush(CLI_OK);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(name, commands[i]->name))
			return commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	const char *names[ARRAY_SIZE(commands) + 1] = { NULL };
	const char *closest;

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		names[i] = commands[i]->name;
	closest = opt_closest(name, names);
	if (closest)
		return complain(CLI_USAGE, "unknown command '%s'; did you mean %s?", name,
				closest);
	return complain(CLI_USAGE, "unknown %s '%s'; see npuwin --help",
			name[0] == '-' ? "option" : "command", name);
}

static bool asks_for_help(int argc, char **argv)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const struct command *cmd;
	int rc;

	if (argc < 2)
		return complain(CLI_USAGE, "which command? see npuwin --help");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return print_program_help();
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		if (opt_no_arguments(argc - 2, argv + 2))
			return CLI_USAGE;
		printf("npuwin %s\n", npuwin_version());
		return cli_flush(CLI_OK);
	}
	if (!strcmp(argv[1], "help")) {
		if (argc < 3)
			return print_program_help();
		argv++;
		argc--;
		cmd = find_command(argv[1]);
		return cmd ? print_help(cmd) : unknown_command(argv[1]);
	}
	cmd = find_command(argv[1]);
	if (!cmd)
		return unknown_command(argv[1]);

	cli_set_command(cmd->name);
	argc -= 2;
	argv += 2;
	if (asks_for_help(argc, argv))
		return print_help(cmd);
	rc = opt_parse((const struct opt *const *)cmd->opts, &argc, argv);
	if (!rc)
		rc = cmd->run(argc, argv);
	return cli_flush(rc);
}
