#!/usr/bin/env python3
"""Checks of the source tree that no compiler makes. Each check is a function from a tree to a list of complaints.

usage: lint.py CHECK [ROOT]      CHECK: includes, lengths, documents, text, format

tests/lint/lint_test.py makes each of them fail.
"""
import os
import re
import shutil
import subprocess
import sys

CODE = (".h", ".hpp", ".c", ".cpp")
MAX_LINES = 800

# Who may include whom: folder -> folders. The longest matching folder decides; every folder may include itself. Data goes from
# hooks through profiler into a file, and from the file through viewer to a person; nothing looks back.
ALLOWED = {
    "proto": [],
    "profiler/channel": [],
    "profiler/writer": ["proto"],
    "profiler/collect": ["profiler/channel", "profiler/writer"],
    "profiler/launch": ["profiler/collect", "hooks/standin/limits.h"],
    "hooks": ["profiler/channel"],
    "hooks/core": ["profiler/channel"],
    "hooks/api": ["hooks/core", "profiler/channel"],
    "hooks/c10": ["hooks/core", "profiler/channel"],
    "hooks/autograd": ["hooks/core", "profiler/channel"],
    "hooks/driver": ["hooks/core", "profiler/channel"],
    "hooks/standin": ["hooks/api"],
    "hooks/python": ["hooks/core", "hooks/c10", "hooks/autograd", "profiler/channel"],
    "viewer/trace": ["proto"],
    "viewer/ledger": ["viewer/trace"],
    "viewer/allocator": ["viewer/trace", "viewer/ledger"],
    "viewer/plan": ["viewer/trace/result.h"],
    "viewer/model": ["proto", "viewer/trace", "viewer/ledger", "viewer/allocator", "viewer/plan"],
    "viewer/compare": ["viewer/trace", "viewer/ledger", "viewer/allocator", "viewer/model"],
    "viewer/import": ["profiler/writer", "proto", "viewer/trace"],
    "viewer/report": ["viewer/trace", "viewer/ledger", "viewer/allocator", "viewer/plan", "viewer/model", "viewer/compare"],
    "viewer/cli": ["viewer", "profiler/launch", "profiler/writer/sink.h"],
    "samples": ["hooks/api"],
    "tests": ["proto", "profiler", "hooks", "viewer", "samples"],
}

# The one home of each package: include pattern, folders, suffixes (None: any).
PACKAGES = [
    (r".*\.pb\.h|google/protobuf/.*", ["proto", "profiler/writer", "viewer/trace", "viewer/model", "viewer/import", "tests"], None),
    (r"spdlog/.*", ["profiler/collect", "profiler/launch", "viewer/cli"], (".cpp",)),
    (r"(zstd|xxhash|zstd_errors|zdict)\.h", ["profiler/writer", "viewer/trace", "tests"], None),
    (r"(CLI|httplib)(/.*|\.h)", ["viewer", "tests"], None),
    (r"nlohmann/.*", ["viewer", "profiler/launch", "tests"], None),
    (r"absl/.*", ["profiler/writer", "profiler/collect", "viewer/ledger", "viewer/allocator", "tests"], None),
    (r"(gtest|gmock)/.*", ["tests"], None),
    (r"(torch|c10|ATen|cuda.*|cupti.*|Python)(/.*|\.h)", ["tests/standin"], None),
]

# In the job there is libc and nothing else: what of the C++ library needs no libstdc++.so. liveset.hpp lives in the program
# that includes it, not in ours, and may use what it likes; the stand-in libraries bring their own C++ library, hidden.
JOB_FOLDERS = ["hooks"]
JOB_EXEMPT = ["hooks/api/liveset.hpp", "hooks/standin"]
JOB_HEADERS = set(
    """algorithm array atomic bit cerrno cinttypes climits concepts csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime
    initializer_list limits new numeric optional span string_view tuple type_traits utility""".split()
)


def files_of(root):
    """The tree's files: what git tracks or would track, or, outside a git checkout, everything but build and hidden folders."""
    git = ["git", "-C", root, "ls-files", "-co", "--exclude-standard"]
    in_checkout = os.path.exists(os.path.join(root, ".git")) and shutil.which("git")
    result = subprocess.run(git, capture_output=True, text=True) if in_checkout else None
    if result and result.returncode == 0:
        names = result.stdout.splitlines()
    else:
        names = []
        for folder, folders, inside in os.walk(root):
            folders[:] = [name for name in folders if name not in ("build", ".git", "__pycache__")]
            names += [os.path.relpath(os.path.join(folder, name), root) for name in inside]
    return sorted(name for name in names if os.path.isfile(os.path.join(root, name)))


def text_of(root, name):
    """The file's text, or None when it is no text."""
    with open(os.path.join(root, name), "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    return data.decode("utf-8", errors="replace")


def within(name, folder):
    return name == folder or name.startswith(folder + "/")


def rule_for(name):
    matching = [folder for folder in ALLOWED if within(name, folder)]
    return max(matching, key=len) if matching else None


def home_of(name):
    """The folder of a file as the rules see it: hooks/core, viewer/cli, proto, tests."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] in ("profiler", "viewer", "hooks") and len(parts) > 2 else parts[0]


def complain_about_include(name, include, project_folders):
    if include.split("/")[0] in project_folders and "/" in include:
        rule = rule_for(name)
        if rule and not any(within(include, folder) for folder in [home_of(name), rule] + ALLOWED[rule]):
            return f"{rule} must not include {include}"
    for pattern, homes, suffixes in PACKAGES:
        if re.fullmatch(pattern, include):
            if not any(within(name, home) for home in homes):
                return f"{include} is not for this folder (its home: {', '.join(homes) or 'nowhere'})"
            if suffixes and not name.endswith(suffixes) and not within(name, "tests"):
                return f"{include} belongs in {', '.join(suffixes)} files only"
    in_job = any(within(name, folder) for folder in JOB_FOLDERS) and not any(within(name, exempt) for exempt in JOB_EXEMPT)
    if in_job and "." not in include and include not in JOB_HEADERS:
        return f"<{include}> needs the C++ library, which the job may not have"
    return None


def includes(root):
    project_folders = {folder.split("/")[0] for folder in ALLOWED}
    complaints = []
    for name in files_of(root):
        if not name.endswith(CODE):
            continue
        for number, line in enumerate(text_of(root, name).splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
            problem = match and complain_about_include(name, match.group(1), project_folders)
            if problem:
                complaints.append(f"{name}:{number}: {problem}")
    return complaints


def lengths(root):
    complaints = []
    for name in files_of(root):
        if name.endswith(CODE + (".py", ".proto", ".cmake")) or within(name, "scripts"):
            count = len((text_of(root, name) or "").splitlines())
            if count > MAX_LINES and not name.endswith(".lock"):
                complaints.append(f"{name}: {count} lines; split it (limit {MAX_LINES})")
    return complaints


def exists_for(root, names, document, path):
    path = path.rstrip("/")
    candidates = [os.path.normpath(os.path.join(os.path.dirname(document), path)), os.path.normpath(path)]
    if any(candidate.startswith("build") for candidate in candidates):
        return True  # made by the build
    if "*" in path:
        pattern = re.compile(re.escape(path).replace(r"\*", "[^/]*"))
        return any(pattern.fullmatch(name) for name in names)
    return any(candidate in names or os.path.isdir(os.path.join(root, candidate)) for candidate in candidates)


def documents(root):
    """Markdown files name only files that exist: in `code` that starts with a folder of this repository, and in links."""
    names = set(files_of(root))
    top_folders = {name.split("/")[0] for name in names if "/" in name}
    complaints = []
    for document in sorted(name for name in names if name.endswith(".md")):
        for number, line in enumerate(text_of(root, document).splitlines(), 1):
            paths = [span for span in re.findall(r"`([\w.*-]+(?:/[\w.*-]*)+)`", line) if span.split("/")[0] in top_folders]
            # A command in code: its first word is a path.
            paths += [word for word in re.findall(r"`([\w.-]+/[\w./-]+) [^`]*`", line) if word.split("/")[0] in top_folders]
            paths += [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", line) if "://" not in link]
            for path in paths:
                if not exists_for(root, names, document, path):
                    complaints.append(f"{document}:{number}: {path} does not exist")
    return complaints


TEXT_RULES = [
    # Everything but the licence: what only one machine has.
    (r"(?<![\w.$}])/(?:home|root|work|workspace|Users)/[\w.-]", None, "an absolute path of one machine"),
    (r"\b(TODO|FIXME|XXX)\b", None, "an unfinished mark: finish it or file it"),
    # Registries are named by their packages; where they are is the business of the user's own configuration.
    (r"https?://", r"(scripts|cmake|\.ci)/.*|.*CMakeLists\.txt", "a host in a script"),
    (r"--(?:extra-)?index-url|--find-links", r"(scripts|cmake|\.ci)/.*", "a package index of one's own"),
]


def text(root):
    complaints = []
    for name in files_of(root):
        content = None if name == "LICENSE" or within(name, "tests/lint") else text_of(root, name)
        for number, line in enumerate((content or "").splitlines(), 1):
            for pattern, where, problem in TEXT_RULES:
                if (where is None or re.fullmatch(where, name)) and re.search(pattern, line):
                    complaints.append(f"{name}:{number}: {problem}: {line.strip()[:100]}")
    return complaints


def format(root):
    """The formatting of .clang-format, as clang-format 14 makes it; other versions differ in details."""
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout if tool else ""
    if not re.search(r"version 14\.", version):
        print(f"SKIPPED: clang-format 14 is not installed (found: {version.strip() or 'none'})")
        return []
    sources = [os.path.join(root, name) for name in files_of(root) if name.endswith(CODE)]
    command = [tool, "--style=file", "--dry-run", "--Werror", *sources]
    result = subprocess.run(command, capture_output=True, text=True) if sources else None
    if not result or result.returncode == 0:
        return []
    wrong = sorted({line.split(":")[0] for line in result.stderr.splitlines() if "error:" in line})
    return [f"{os.path.relpath(name, root)}: not formatted; run: {os.path.basename(tool)} -i on it" for name in wrong]


CHECKS = {check.__name__: check for check in (includes, lengths, documents, text, format)}


def main(arguments):
    if not arguments or arguments[0] not in CHECKS:
        print(__doc__, file=sys.stderr)
        return 2
    root = arguments[1] if len(arguments) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    complaints = CHECKS[arguments[0]](os.path.normpath(root))
    print("\n".join(complaints) if complaints else f"{arguments[0]}: fine")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
