#include "profiler/launch/dry_run.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "hooks/standin/limits.h"
#include "profiler/launch/elf_file.h"
#include "profiler/launch/gpu_profile.h"
#include "profiler/launch/job_program.h"
#include "profiler/launch/library_folder.h"
#include "profiler/launch/program.h"
#include "profiler/launch/shadow.h"
#include "profiler/launch/signals.h"

namespace liveset::launch {
namespace {

constexpr int devices_of_a_host = 8;  // as most hosts that train have; a job of more ranks has several hosts

using Environment = std::vector<std::pair<std::string, std::string>>;

// What stands in for NVIDIA's libraries, for one CUDA family.
struct Family {
  std::string folder;  // .../standin/cuda13
  int driver_version = 0;
  std::string problem;
};

RunResult refuse(const std::string& problem) {
  std::fprintf(stderr, "liveset: %s\n", problem.c_str());
  return {};
}

// `version` is CUDA's: "13.0".
Family find_family(const std::string& standin, const std::string& version, const std::string& whose) {
  const std::string major = version.substr(0, version.find('.'));
  Family family{standin + "/cuda" + major, major == "12" ? 12080 : 13000, ""};
  std::error_code code;
  if ((major == "12" || major == "13") && std::filesystem::is_directory(family.folder, code)) return family;
  std::string known;
  for (const char* each : {"12", "13"}) {
    if (std::filesystem::is_directory(standin + "/cuda" + each, code))
      known += (known.empty() ? "CUDA " : " and CUDA ") + std::string(each);
  }
  family.problem = whose + " is of CUDA " + version + ", another family than a dry run stands in for (" +
                   (known.empty() ? "no stand-in library is installed" : known) + ")";
  return family;
}

// Of a program that is no Python: by the runtime library that it needs.
Family find_program_family(const std::string& standin, const std::string& path) {
  const std::optional<ElfFile> file = read_elf(path);
  const std::string runtime = "libcudart.so.";
  for (const std::string& needed : file ? file->needed : std::vector<std::string>()) {
    if (needed.compare(0, runtime.size(), runtime) == 0) return find_family(standin, needed.substr(runtime.size()), path);
  }
  if (file && file->has_device_code) {
    return {"", 0,
            path +
                ": has NVIDIA's runtime linked in statically, and a dry run puts none of NVIDIA's code on its stand-in driver; "
                "build it with nvcc --cudart shared"};
  }
  return find_family(standin, "13", path);
}

// The number behind an option of a launcher, written as "--option=N" or "--option N"; 0 when there is none.
int number_of_option(const std::vector<std::string>& command, std::initializer_list<const char*> options) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::size_t equals = command[i].find('=');
    const std::string name = command[i].substr(0, equals);
    if (std::find(options.begin(), options.end(), name) == options.end()) continue;
    const std::string number = equals != std::string::npos ? command[i].substr(equals + 1) : i + 1 < command.size() ? command[i + 1] : "";
    return std::max(0, std::atoi(number.c_str()));
  }
  return 0;
}

// Whether the command starts the ranks by itself.
bool starts_ranks(const std::vector<std::string>& command) {
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string name = command[i].substr(command[i].rfind('/') + 1);
    if (name == "torchrun" || name == "deepspeed" || name == "torch.distributed.run" || name == "torch.distributed.launch") return true;
    if ((name == "accelerate" || name == "accelerate.commands.launch") && i + 1 < command.size()) return true;
  }
  return false;
}

// A host with all the devices that CUDA_VISIBLE_DEVICES lists.
int devices_named_visible() {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  long most = 0;
  while (list != nullptr && *list != 0) {
    char* end = nullptr;
    const long ordinal = std::strtol(list, &end, 10);
    if (end == list || (*end != 0 && *end != ',')) break;
    if (ordinal < standin::limits::most_devices) most = std::max(most, ordinal + 1);
    list = *end == ',' ? end + 1 : end;
  }
  return static_cast<int>(most);
}

// A port that nobody listens at now.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  int port = 29500;  // PyTorch's own choice
  if (socket >= 0 && bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    port = ntohs(address.sin_port);
  if (socket >= 0) close(socket);
  return port;
}

std::string in_front(const std::string& paths, const char* variable) {
  const char* users = std::getenv(variable);
  return users != nullptr && *users != 0 ? paths + ":" + users : paths;
}

const char* name_of(Backing backing) { return backing == Backing::none ? "none" : backing == Backing::small ? "small" : "all"; }

// The configuration of the stand-in device; hooks/standin/model reads it.
std::string device_lines(const DryRunOptions& options, const GpuProfile& gpu, int devices, int world, const Family& family,
                         const std::string& standin) {
  std::string assumed;
  for (const std::string& name : gpu.assumed()) {
    if (name != "memory_bytes" || !options.memory_bytes) assumed += (assumed.empty() ? "" : ",") + name;
  }
  std::string lines;
  const auto line = [&lines](const std::string& key, const std::string& value) { lines += key + "=" + value + "\n"; };
  line("gpu", gpu.gpu);
  line("name", gpu.name.value);
  line("capability", std::to_string(gpu.capability.value));
  line("multiprocessors", std::to_string(gpu.multiprocessors.value));
  line("memory_bytes", std::to_string(options.memory_bytes.value_or(gpu.memory_bytes.value)));
  line("context_bytes", std::to_string(gpu.context_bytes.value));
  line("devices", std::to_string(devices));
  line("backing", name_of(options.backing));
  line("world", std::to_string(world));
  line("assumed", assumed);
  line("folder", standin);
  line("driver_version", std::to_string(family.driver_version));
  for (const auto& [number, fact] : gpu.attributes) line("attribute." + std::to_string(number), std::to_string(fact.value));
  return lines;
}

// One process that is rank 0 of the world.
void add_rank(Environment& environment, int world, int devices) {
  const auto set = [&environment](const char* name, const std::string& value) { environment.emplace_back(name, value); };
  set("RANK", "0");
  set("LOCAL_RANK", "0");
  set("WORLD_SIZE", std::to_string(world));
  set("LOCAL_WORLD_SIZE", std::to_string(devices));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(free_port()));
  set("TORCH_GLOO_LAZY_INIT", "1");  // else a group for the CPU beside NCCL's connects to all ranks at once
}

// Compilers of kernels choose by what they measure and keep it: what they find here must not reach a real run.
void add_caches(Environment& environment, const std::string& folder) {
  environment.emplace_back("TORCHINDUCTOR_CACHE_DIR", folder + "/cache/inductor");
  environment.emplace_back("TRITON_CACHE_DIR", folder + "/cache/triton");
  environment.emplace_back("TORCH_EXTENSIONS_DIR", folder + "/cache/extensions");
}

}  // namespace

RunResult dry_run(const DryRunOptions& options) {
  const std::string standin = find_own("standin");
  if (standin.empty()) return refuse("the stand-in libraries are missing beside " + own_path());
  const FoundProfile gpu = find_gpu_profile(options.gpu, find_own("gpus"));
  if (!gpu.problem.empty()) return refuse(gpu.problem);
  if (options.memory_bytes) {  // that of a profile was checked when it was read
    if (*options.memory_bytes > standin::limits::most_bytes)
      return refuse("--memory: a dry run's device has at most " + std::to_string(standin::limits::most_bytes >> 40) + " TiB");
    if (*options.memory_bytes <= gpu.profile.context_bytes.value)
      return refuse("--memory: " + std::to_string(*options.memory_bytes) + " bytes must be more than the " +
                    std::to_string(gpu.profile.context_bytes.value) + " bytes of a context on this device");
  }
  const std::vector<std::string>& command = options.run.command;
  const Program program = find_program(command.front());
  if (!program.problem.empty()) return refuse(program.problem);
  const JobProgram job = options.python.empty() ? find_job_program(command) : JobProgram{{options.python}, "", ""};
  if (!job.problem.empty()) return refuse(job.problem);
  const TorchInstall torch = job.python.empty() ? TorchInstall{} : find_torch(job.python);
  if (!torch.problem.empty()) return refuse(torch.problem);
  if (torch.ignores_environment) {
    return refuse(job.python.front() +
                  ": options -I and -E keep PYTHONPATH out, by which the stand-in libraries come; start it without them");
  }
  const Family family = job.python.empty() ? find_program_family(standin, job.program)
                                           : find_family(standin, torch.cuda, "torch " + torch.version + " in " + torch.folder);
  if (!family.problem.empty()) return refuse(family.problem);

  const bool has_launcher = starts_ranks(command);
  const int ranks = has_launcher ? number_of_option(command, {"--nproc-per-node", "--nproc_per_node", "--num_processes", "--num_gpus"}) : 0;
  if (ranks > standin::limits::most_devices)
    return refuse(std::to_string(ranks) + " ranks on a host: a dry run has at most " + std::to_string(standin::limits::most_devices) +
                  " devices");
  const bool alone = options.world > 1 && !has_launcher;
  const int of_world = std::min(options.world, alone ? devices_of_a_host : static_cast<int>(standin::limits::most_devices));
  const int devices = std::max({1, of_world, ranks});
  const int host_devices = std::max(devices, devices_named_visible());

  const HeldSignals signals;  // before there is something to remove
  std::unique_ptr<Shadow> shadow;
  RunOptions run_options = options.run;
  Environment& environment = run_options.environment;
  if (!job.python.empty()) {
    const std::string site = alone ? standin + "/python/one_rank/sitecustomize.py" : "";
    shadow = std::make_unique<Shadow>(ShadowPlan{torch.folder, torch.nvidia, family.folder, find_own("standin/empty.so"), site});
    if (!shadow->problem().empty()) return refuse(shadow->problem());
    environment.emplace_back("PYTHONPATH", in_front(shadow->folder(), "PYTHONPATH"));
    add_caches(environment, shadow->folder());
  }
  const std::string libraries = standin + "/driver:" + family.folder;
  for (const std::string& path : {standin, shadow ? shadow->folder() : std::string()}) {
    if (path.find_first_of(":;") != std::string::npos) return refuse(path + ": a path with ':' or ';' cannot be searched for libraries");
  }
  environment.emplace_back("LD_LIBRARY_PATH", in_front(libraries, "LD_LIBRARY_PATH"));
  environment.emplace_back("TRITON_LIBCUDA_PATH", standin + "/driver");
  environment.emplace_back("LIVESET_STANDIN", device_lines(options, gpu.profile, host_devices, alone ? options.world : 1, family, standin));
  if (alone) add_rank(environment, options.world, devices);
  run_options.quiet = true;  // the caller says it
  return run(run_options, signals);
}

}  // namespace liveset::launch
