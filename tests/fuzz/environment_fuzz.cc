// The environment of the process: TUTTI_* settings, and the variables of launchers. Inputs are
// lines NAME=VALUE; a line without a known name that begins with a digit of the list below stands
// for one of the known names.
//
// Beyond not crashing: settings are within their ranges; a world has its rank inside and a place to
// meet; errors name what is wrong and never show the secret.
#include "base/config.hpp"
#include "base/environment.hpp"
#include "base/text.hpp"
#include "fuzz.hpp"

namespace tutti::fuzz {
namespace {

using namespace tutti::base;

constexpr std::string_view kLauncherNames[] = {"RANK",
                                               "WORLD_SIZE",
                                               "LOCAL_RANK",
                                               "LOCAL_WORLD_SIZE",
                                               "MASTER_ADDR",
                                               "MASTER_PORT",
                                               "OMPI_COMM_WORLD_RANK",
                                               "OMPI_COMM_WORLD_SIZE",
                                               "OMPI_COMM_WORLD_LOCAL_RANK",
                                               "OMPI_COMM_WORLD_LOCAL_SIZE",
                                               "PMIX_NAMESPACE",
                                               "OMPI_MCA_ess_base_jobid",
                                               "MPI_LOCALRANKID",
                                               "MPI_LOCALNRANKS",
                                               "PMI_RANK",
                                               "PMI_SIZE",
                                               "PMI_LOCAL_RANK",
                                               "PMI_LOCAL_SIZE",
                                               "PALS_APID",
                                               "SLURM_STEP_ID",
                                               "SLURM_JOB_ID",
                                               "SLURM_PROCID",
                                               "SLURM_LOCALID",
                                               "SLURM_NODEID",
                                               "SLURM_NTASKS",
                                               "SLURM_STEP_NUM_TASKS",
                                               "SLURM_STEP_NUM_NODES",
                                               "SLURM_STEP_TASKS_PER_NODE",
                                               "SLURM_STEP_NODELIST"};

constexpr std::string_view kSecretMark = "0123456789abcdef";

// One byte chooses among all known names, so that the search need not spell them.
std::string_view name_of(std::string_view name) {
  if (name.size() != 1) return name;
  const auto variables = config_variables();
  const std::size_t index = static_cast<unsigned char>(name[0]);
  if (index < variables.size()) return variables[index].name;
  return kLauncherNames[index % std::size(kLauncherNames)];
}

Environment environment_of(std::string_view input) {
  Environment environment;
  for (const std::string_view line : split(input, '\n')) {
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(name_of(line.substr(0, equals)), line.substr(equals + 1));
  }
  return environment;
}

void check_config(const Environment& environment) {
  const Result<Config> config = parse_config(environment);
  if (config.ok()) {
    TUTTI_ASSERT(config->channels >= 0 && config->channels <= 64, "channels are within bounds");
    TUTTI_ASSERT(config->timeout.count() > 0 && config->setup_timeout.count() > 0,
                 "time-outs are positive");
    TUTTI_ASSERT(config->job_secret.size() <= 256, "a secret is within bounds");
    return;
  }
  TUTTI_ASSERT(config.status().code() == StatusCode::invalid_argument, "values are arguments");
  const bool secret_alone = environment.size() == 1 && environment.contains("TUTTI_JOB_SECRET");
  TUTTI_ASSERT(!secret_alone || config.status().message().find(kSecretMark) == std::string::npos,
               "a secret is not shown");
}

void check_world(const Environment& environment) {
  const Result<WorldEnvironment> world = world_from_environment(environment, [] { return 4711L; });
  if (!world.ok()) {
    TUTTI_ASSERT(!world.status().message().empty(), "an error says what is wrong");
    return;
  }
  TUTTI_ASSERT(world->rank >= 0 && world->rank < world->world_size, "the rank is in the world");
  TUTTI_ASSERT(world->local_size == -1 || world->local_rank < world->local_size,
               "the local rank is on the host");
  TUTTI_ASSERT(world->world_size == 1 || (!world->master_address.empty() &&
                                          world->master_port > 0 && world->master_port < 65536),
               "there is a place to meet");
}

}  // namespace

std::size_t input_bytes_max() { return 1024; }

void run(std::string_view input) {
  const AllocationLimit limit(128 * input.size() + 64 * 1024);
  const Environment environment = environment_of(input);
  check_config(environment);
  check_world(environment);
}

std::vector<std::string> seeds() {
  return {
      "TUTTI_TRANSPORT=shm\nTUTTI_CHANNELS=4\nTUTTI_SLICE_BYTES=1.5M\nTUTTI_TIMEOUT_MS=10\n"
      "TUTTI_WAIT=spin\nTUTTI_LOWERING=direct\nTUTTI_LOG=info\nTUTTI_ALGORITHM=ring",
      "TUTTI_JOB_SECRET=0123456789abcdef0123456789abcdefx",
      "TUTTI_CHANELS=4",
      "RANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=4\nMASTER_PORT=29500",
      "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_SIZE=2\n"
      "OMPI_COMM_WORLD_LOCAL_RANK=0\nPMIX_NAMESPACE=ns1",
      "MPI_LOCALRANKID=0\nMPI_LOCALNRANKS=2\nPMI_RANK=0\nPMI_SIZE=2",
      "SLURM_STEP_ID=0\nSLURM_JOB_ID=7\nSLURM_PROCID=5\nSLURM_STEP_NUM_TASKS=11\n"
      "SLURM_NODEID=1\nSLURM_LOCALID=1\nSLURM_STEP_TASKS_PER_NODE=4(x2),3\n"
      "SLURM_STEP_NODELIST=gpu[003-006,9],login1",
      "PMI_RANK=0\nPMI_SIZE=1\nPALS_APID=x"};
}

}  // namespace tutti::fuzz
