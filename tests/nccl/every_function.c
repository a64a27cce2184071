/* every_function.c: a program that uses every function of nccl.h, by themes; arguments name those
 * to run, none means all. It is compiled against Tutti's header and against NCCL's, as C and as
 * C++, and linked with Tutti's library. Ends with 0 when every check held. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

typedef struct {
  const char* name;
  void (*run)(void);
} Theme;

/* Processes come first: they are made before the library has been called. */
static const Theme themes[] = {
    {"processes", test_processes}, {"making", test_making},
    {"configs", test_configs},     {"collectives", test_collectives},
    {"groups", test_groups},       {"families", test_families},
    {"endings", test_endings},     {"memory", test_memory},
    {"mistakes", test_mistakes},   {"names", test_names},
    {"newer", test_newer},         {"device", test_device},
};
enum { theme_count = sizeof themes / sizeof themes[0] };

/* No theme needs a tenth of it, but machines are shared. */
enum { theme_seconds = 100 };

static void give_up(int signal_number) {
  static const char text[] = "a theme did not end in time\n";
  (void)signal_number;
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(4);
  _exit(3);
}

static void run_theme(const Theme* theme) {
  const int before = checks_failed();
  printf("%s...\n", theme->name);
  fflush(stdout);
  alarm(theme_seconds);
  theme->run();
  alarm(0);
  printf("%s: %s\n", theme->name, checks_failed() == before ? "ok" : "FAILED");
  fflush(stdout);
}

static int run_named(const char* name) {
  for (int i = 0; i < theme_count; ++i) {
    if (strcmp(themes[i].name, name) != 0) continue;
    run_theme(&themes[i]);
    return 1;
  }
  fprintf(stderr, "there is no theme \"%s\"\n", name);
  return 0;
}

int main(int count, char** arguments) {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  signal(SIGALRM, give_up);
  if (count == 1) {
    for (int i = 0; i < theme_count; ++i) run_theme(&themes[i]);
  }
  for (int i = 1; i < count; ++i) {
    if (!run_named(arguments[i])) return 2;
  }
  if (checks_failed() > 0) fprintf(stderr, "%d checks failed\n", checks_failed());
  return checks_failed() > 0 ? 1 : 0;
}
