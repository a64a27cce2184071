// The main function of every perf tool; the build says which one (TUTTI_PERF_TOOL).
#include "perf/common/run.hpp"

int main(int argc, char** argv) {
  return tutti::perf::run_program(tutti::perf::TUTTI_PERF_TOOL(), argc, argv);
}
