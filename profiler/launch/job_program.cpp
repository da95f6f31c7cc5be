#include "profiler/launch/job_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "profiler/launch/program.h"

namespace liveset::launch {
namespace {

using Words = std::vector<std::string>;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* each) { return word == each; });
}

// What is for a wrapper, not what it runs: an option, or a variable (PYSPARK_PYTHON=/usr/bin/python3).
bool is_for_wrapper(const std::string& word) {
  if (word.empty() || word[0] == '-') return true;
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 && std::isdigit(static_cast<unsigned char>(word[0])) == 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char letter) { return letter == '_' || std::isalnum(letter) != 0; });
}

// python, python3, python3.12, python3.13t; a path to one of them.
bool is_python(const std::string& word) {
  const std::string name = base_name(word);
  return name.compare(0, 6, "python") == 0 && name.find_first_not_of("0123456789.t", 6) == std::string::npos;
}

bool is_shell(const std::string& word) { return is_one_of(base_name(word), {"sh", "bash", "dash", "zsh", "ksh"}); }

// Programs that run the command behind their own options, in their own environment.
bool is_wrapper(const std::string& word) {
  return is_one_of(base_name(word), {"env", "nice", "nohup", "ionice", "taskset", "numactl", "stdbuf", "setsid", "timeout", "time", "chrt",
                                     "unbuffer", "xvfb-run", "catchsegv"});
}

// Programs that run the command in an environment of their choice: what PATH finds here says nothing.
bool is_environment_tool(const std::string& word) {
  return is_one_of(base_name(word), {"uv", "poetry", "conda", "mamba", "micromamba", "pixi", "pdm", "hatch", "pipenv", "rye"});
}

// words[0..python] and the options of the interpreter that follow: up to a script, "-c", "-m" or "-".
Words with_options(const Words& words, std::size_t python) {
  Words taken(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(python) + 1);
  for (std::size_t i = python + 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || word[0] != '-' || word == "--") break;
    if (word.compare(0, 2, "--") == 0) {  // --check-hash-based-pycs MODE
      taken.push_back(word);
      if (word == "--check-hash-based-pycs" && i + 1 < words.size()) taken.push_back(words[++i]);
      continue;
    }
    // A cluster such as -Im or -uW error: -c and -m end the options, -W and -X take the rest or the next word.
    const std::size_t stop = word.find_first_of("cmWX", 1);
    if (stop == std::string::npos) {
      taken.push_back(word);
    } else if (word[stop] == 'c' || word[stop] == 'm') {
      if (stop > 1) taken.push_back(word.substr(0, stop));
      break;
    } else {
      taken.push_back(word);
      if (stop + 1 == word.size() && i + 1 < words.size()) taken.push_back(words[++i]);
    }
  }
  return taken;
}

// What pip writes when the interpreter's path is too long for a "#!" line: '''exec' "/a/long/path/python" "$0" "$@"
std::string python_of_long_script(const std::string& path) {
  std::string text(4096, '\0');
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t got = file >= 0 ? read(file, text.data(), text.size()) : -1;
  if (file >= 0) close(file);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::string mark = "'''exec' ";
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + mark.size();
  const bool in_quotes = begin < text.size() && text[begin] == '"';
  const std::size_t end = text.find(in_quotes ? '"' : ' ', begin + 1);
  return end == std::string::npos ? std::string() : text.substr(begin + in_quotes, end - begin - in_quotes);
}

JobProgram python_of_path() {
  for (const char* name : {"python", "python3"}) {
    if (!find_in_path(name).empty()) return {{name}, "", ""};
  }
  return {{}, "", "the command is a shell's, and PATH has no python (name the one that it runs with --python)"};
}

JobProgram find(const Words& words, std::size_t from);

// A script: its interpreter takes its place.
JobProgram find_in_script(const Words& before, const std::string& path, Words interpreter) {
  if (is_shell(interpreter[0])) {
    const std::string python = python_of_long_script(path);
    if (python.empty()) return python_of_path();
    interpreter = {python};
  }
  if (base_name(interpreter[0]) == "env" && interpreter.size() > 1 && interpreter[1] == "-S") interpreter.erase(interpreter.begin() + 1);
  Words words = before;
  words.insert(words.end(), interpreter.begin(), interpreter.end());
  return find(words, before.size());
}

JobProgram find(const Words& words, std::size_t from) {
  for (std::size_t i = from; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (i > from && is_for_wrapper(word)) continue;
    if (is_python(word)) return {with_options(words, i), "", ""};
    if (is_wrapper(word)) continue;
    if (is_environment_tool(word)) {
      for (++i; i < words.size(); ++i) {
        if (!is_for_wrapper(words[i]) && is_python(words[i])) return {with_options(words, i), "", ""};
      }
      return {{}, "", word + ": cannot tell which Python it will run (name it with --python)"};
    }
    const std::string path = find_in_path(word);
    if (path.empty() || access(path.c_str(), X_OK) != 0) {
      if (i == from) break;
      continue;
    }
    if (is_shell(path)) return python_of_path();
    const Words interpreter = script_interpreter(path);
    if (!interpreter.empty())
      return find_in_script(Words(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i)), path, interpreter);
    return {{}, path, ""};
  }
  return {{}, "", "cannot tell which program \"" + words.back() + "\" is run by"};
}

struct Answer {
  std::string text;
  int status = -1;  // of wait(); -1: could not be started, errno says why
};

Answer ask(const Words& command) {
  Answer answer;
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return answer;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, pipe[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(pipe[1]);
  char bytes[4096];
  for (ssize_t got = 0; error == 0 && (got = read(pipe[0], bytes, sizeof bytes)) != 0;) {
    if (got < 0 && errno != EINTR) break;
    if (got > 0) answer.text.append(bytes, static_cast<std::size_t>(got));
  }
  close(pipe[0]);
  errno = error;
  while (error == 0 && waitpid(pid, &answer.status, 0) < 0 && errno == EINTR) {
  }
  return answer;
}

constexpr const char* answer_mark = "liveset-answer ";

// Prints one line. The current folder is looked at by -c alone, not by the scripts that a job runs.
constexpr const char* question = R"python(
import importlib.util, json, os, runpy, sys
if sys.path and sys.path[0] == "": del sys.path[0]
def folders(name):
    try: spec = importlib.util.find_spec(name)
    except Exception: spec = None
    return list(spec.submodule_search_locations or []) if spec else []
answer = {"executable": sys.executable, "ignores_environment": bool(sys.flags.ignore_environment), "no_site": bool(sys.flags.no_site), "torch": "", "version": "", "cuda": ""}
answer["nvidia"] = [folder for folder in folders("nvidia") if os.path.isdir(folder)]
for folder in folders("torch")[:1]:
    answer["torch"] = folder
    try: facts = runpy.run_path(os.path.join(folder, "version.py"))
    except Exception: facts = {}
    answer["version"], answer["cuda"] = str(facts.get("__version__") or ""), str(facts.get("cuda") or "")
print("\nliveset-answer " + json.dumps(answer), flush=True)
)python";

// An embedded Python may not know its own path: then it is null.
std::string text_of(const nlohmann::json& answer, const char* key) {
  const auto found = answer.find(key);
  return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string joined(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

JobProgram find_job_program(const Words& command) { return find(command, 0); }

TorchInstall find_torch(const Words& python) {
  TorchInstall found;
  Words command = python;
  command.insert(command.end(), {"-c", question});
  const Answer answer = ask(command);
  const std::string name = joined(python);
  if (answer.status == -1) {
    found.problem = name + ": " + std::strerror(errno);
    return found;
  }
  const std::size_t mark = answer.text.rfind(answer_mark);
  const std::size_t begin = mark == std::string::npos ? mark : mark + std::strlen(answer_mark);
  const auto json = begin == std::string::npos
                        ? nlohmann::json()
                        : nlohmann::json::parse(answer.text.substr(begin, answer.text.find('\n', begin) - begin), nullptr, false);
  if (!json.is_object()) {
    found.problem = name + ": gave no answer when asked for its torch (exit status " +
                    std::to_string(WIFEXITED(answer.status) ? WEXITSTATUS(answer.status) : 128 + WTERMSIG(answer.status)) + ")";
    return found;
  }
  const std::string told = text_of(json, "executable");
  const std::string executable = told.empty() ? name : told;
  found.folder = text_of(json, "torch");
  found.version = text_of(json, "version");
  found.cuda = text_of(json, "cuda");
  for (const auto& folder : json.value("nvidia", nlohmann::json::array())) {
    if (folder.is_string()) found.nvidia.push_back(folder.get<std::string>());
  }
  found.ignores_environment = json.value("ignores_environment", false);
  const bool has_option_s = json.value("no_site", false);
  if (found.folder.empty())
    found.problem = executable + ": this Python has no torch" +
                    (has_option_s ? " (started with -S it does not look into site-packages)" : " (--python names another one)");
  else if (found.cuda.empty())
    found.problem = executable + ": its torch " + found.version + " is built without CUDA; a dry run needs a CUDA build of torch (no GPU)";
  return found;
}

}  // namespace liveset::launch
