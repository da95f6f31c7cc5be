#!/usr/bin/env python3
"""Renews the lists of exported names in this folder from NVIDIA's wheels of one CUDA family. For maintainers; no build runs it.

    hooks/standin/exports/update.py FAMILY SITE_PACKAGES [--driver] [--nvml pynvml.py] [LIBRARY...]

FAMILY is cuda13 or cuda12; SITE_PACKAGES is a folder with the wheels that torch asks for (`pip install --no-deps --target`) and
those that its headers need (nvidia-cuda-nvcc, nvidia-cuda-cccl). --driver writes driver/libcuda.so.1.txt from cuda.h, --nvml
driver/libnvidia-ml.so.1.txt from the names that the Python binding nvidia-ml-py looks up. Needs readelf and gcc -E.

A list holds names and positions of arguments, nothing else of the wheels. Its lines:

    # comment
    package NAME VERSION        the wheel that the names are of; the stand-in reports this version
    node NAME                   symbol version of every name, absent where the real library has none
    unknown_returns NUMBER      what functions without an action return (0 when absent)
    NAME                        a function whose answer is not known: calls are counted and named at the end of the dry run
    NAME ok                     only values or settings change: it returns 0
    NAME create N               argument N receives a fresh handle
    NAME free N                 argument N is such a handle, and dies
    NAME bytes N / int N        argument N (size_t* / int*) receives 0, an assumed size of a workspace
    NAME zero N / zeros N M     argument N (int*, host or device) receives 0, or as many as argument M says: nothing went wrong
    NAME text                   returns a text
    NAME data SIZE              not a function: zeros of SIZE bytes

N counts from 0 and leaves out floating-point arguments, which travel in registers of their own. Several actions may follow a name.
"""
import argparse
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# SONAME without its version -> (wheel, headers with its prototypes). No headers: nothing of that library is answered by a list.
LIBRARIES = {
    "libcudart": ("cuda-runtime", []),
    "libcublas": ("cublas", ["cublas_v2.h", "cublasXt.h"]),
    "libcublasLt": ("cublas", ["cublasLt.h"]),
    "libcudnn": ("cudnn", ["cudnn.h"]),
    "libcufft": ("cufft", ["cufft.h", "cufftXt.h"]),
    "libcufftw": ("cufft", ["cufftw.h"]),
    "libcurand": ("curand", ["curand.h"]),
    "libcusparse": ("cusparse", ["cusparse.h"]),
    "libcusparseLt": ("cusparselt", ["cusparseLt.h"]),
    "libcusolver": ("cusolver", ["cusolverDn.h", "cusolverSp.h", "cusolverRf.h", "cusolverSp_LOWLEVEL_PREVIEW.h"]),
    "libcusolverMg": ("cusolver", ["cusolverMg.h"]),
    "libnvrtc": ("cuda-nvrtc", ["nvrtc.h"]),
    "libnvJitLink": ("nvjitlink", ["nvJitLink.h"]),
    "libcupti": ("cuda-cupti", ["cupti.h"]),
    "libcufile": ("cufile", ["cufile.h"]),
    "libnccl": ("nccl", []),
    "libnvshmem_host": ("nvshmem", []),
}
# "Not supported" or the nearest to it, where a job must not go on with an answer that nobody gave.
UNKNOWN_RETURNS = {"libcudart": 801, "libnvJitLink": 6}
# Arguments that say what went wrong, and the batched functions that state it once for the whole batch.
STATUS = re.compile(r"^(d_|h_|dev_?)?info(Array)?$", re.I)
ONE_STATUS = re.compile(r"(getrs|gels|geqrf|potrs)Batched")
DRIVER_MODES = ["", "-D__CUDA_API_VERSION_INTERNAL", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM"]
FLOATING = re.compile(r"^(const )?(float|double|cuComplex|cuDoubleComplex|cuFloatComplex|float2|double2)( \w+)?$")
WORKSPACE = re.compile(r"bufferSize|BufferInfo|Workspace|SpaceSize|SizeInBytes|StatesSize|IndicesSize|CompressedSize|AttnBuffers|"
                       r"SpGEMM|createPlan|cufft(Xt)?(Get|Make|Estimate)", re.I)
# What no program calls: C++ names, start code, and the kernels that some releases of cuSPARSELt show.
INTERNAL = re.compile(r"_Z|_init$|_fini$|cask_|sm\d+_")


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def preprocessed(header, flags):
    errors = []
    for language in ("c", "c++"):  # some headers want one of them
        result = subprocess.run(["gcc", "-E", "-P", *flags, "-x", language, "-"], input=f"#include <{header}>\n", capture_output=True,
                                text=True)
        if result.returncode == 0:
            return result.stdout
        errors.append(result.stderr)
    sys.exit(f"{header}: {errors[0][:500]}")


def prototypes(headers, include_folders):
    """name -> (return type, [argument, ...]) of every function that the headers declare."""
    found = {}
    folders = [f"-I{folder}" for folder in include_folders]
    for header in headers:
        source = preprocessed(header, folders)
        source = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", source)
        for match in re.finditer(r"([A-Za-z_][\w\s*]*?[\s*])(\w+)\s*\(((?:[^(){};]|\([^()]*\))*)\)\s*;", source):
            arguments = [" ".join(argument.split()) for argument in re.split(r",(?![^(]*\))", match[3])]
            if arguments in (["void"], [""]):
                arguments = []
            found[match[2]] = (" ".join(match[1].split()), arguments)
    return found


def pointee(argument):
    """What a modifiable `T *name` points at, and its name; None for anything else."""
    match = re.match(r"^(?:struct )?(\w+(?: long)?(?: long)?) ?\*(?: ?restrict)? ?(\w*)$", argument)
    return match.groups() if match and not argument.startswith("const ") else None


def position_of(pattern, arguments):
    """The number of the first argument that matches, None where there is none."""
    numbered = [argument for argument in arguments if not FLOATING.match(argument)]
    return next((number for number, argument in enumerate(numbered) if re.search(pattern, argument)), None)


def actions(name, prototype):
    """The actions of one function, as the list states them; empty where its answer is not known."""
    if prototype is None:
        return []
    returns, arguments = prototype
    if re.search(r"\bchar ?\*", returns):
        return ["text"]
    if "*" in returns:
        return []
    if re.search(r"destroy", name, re.I) and len(arguments) == 1 and re.fullmatch(r"\w+_t \w+", arguments[0]):
        return ["free 0"]
    found, unanswered, position = [], False, 0
    for argument in arguments:
        if FLOATING.match(argument):
            continue
        target = pointee(argument)
        if target:
            kind, label = target
            if re.search(r"create", name, re.I) and re.search(r"(_t|Handle|Info|Descr?|Plan|Params|Program|Comm)$", kind) \
                    and not re.search(r"^(size_t|u?int\d+_t)$", kind):
                found.append(f"create {position}")
            elif kind == "size_t" and WORKSPACE.search(name) and re.search(r"size|bytes|work", label, re.I):
                found.append(f"bytes {position}")
            elif kind == "int" and STATUS.search(label):
                batch = None if ONE_STATUS.search(name) and label != "devInfoArray" else position_of(r"batchSize$", arguments)
                found.append(f"zero {position}" if batch is None else f"zeros {position} {batch}")
            elif kind == "int" and WORKSPACE.search(name) and re.search(r"lwork|buffersize|size", label, re.I):
                found.append(f"int {position}")
            else:
                unanswered = True
        elif re.search(r"\*\s*\*", argument):
            unanswered = True
        position += 1
    # A query that writes to memory of the caller which no rule above fills is not answered. Pointers of other functions are device memory.
    query = re.search(r"Get|Query|Create|_get|_query|Find|nnz|Version|bufferSize|Estimate|Size|Supported|Subscribe", name)
    if unanswered and query and not any(action.startswith("create") for action in found):
        return []
    return found or ["ok"]


def exported(path):
    """(version node or None, {function}, {data name: size}) of a shared library; C names only."""
    node, functions, data = None, set(), {}
    for line in output_of("readelf", "-W", "--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].endswith(":") or fields[6] in ("UND", "ABS") or fields[4] not in ("GLOBAL", "WEAK"):
            continue
        name, _, version = fields[7].partition("@@")
        if not re.fullmatch(r"\w+", name) or INTERNAL.match(name):
            continue
        node = version or node
        if fields[3] == "OBJECT":
            data[name] = int(fields[2], 0)
        else:
            functions.add(name)
    return node, functions, data


def wheel_version(site_packages, wheel):
    names = [f for f in glob.glob(f"{site_packages}/nvidia_*.dist-info")
             if re.match(rf"nvidia_{wheel.replace('-', '_')}(_cu\d+)?-[\d.]+\.dist-info", os.path.basename(f))]
    if len(names) != 1:
        sys.exit(f"{site_packages}: expected one wheel nvidia-{wheel}, found {names}")
    return os.path.basename(names[0])[:-len(".dist-info")].rsplit("-", 1)


def write_list(folder, soname, header, lines):
    os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    path = os.path.join(HERE, folder, f"{soname}.txt")
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"# Exported names of {soname}. Format, source and how to renew: hooks/standin/exports/update.py\n")
        out.write("".join(f"{line}\n" for line in header + lines))
    print(f"{os.path.relpath(path)}: {len(lines)} names")


def write_library(family, site_packages, path):
    soname = os.path.basename(path)
    wheel, headers = LIBRARIES[soname.partition(".so")[0]]
    folders = [f for f in glob.glob(f"{site_packages}/nvidia/*/include")]
    node, functions, data = exported(path)
    declared = prototypes(headers, folders)
    package, version = wheel_version(site_packages, wheel)
    header = [f"package {package.replace('_', '-')} {version}"]
    if node:
        header.append(f"node {node}")
    if soname.partition(".so")[0] in UNKNOWN_RETURNS:
        header.append(f"unknown_returns {UNKNOWN_RETURNS[soname.partition('.so')[0]]}")
    found = {name: actions(name, declared.get(name)) for name in sorted(functions)}
    if not any(action.startswith("create") for listed in found.values() for action in listed):
        found = {name: [] if listed == ["free 0"] else listed for name, listed in found.items()}
    lines = [" ".join([name] + listed) for name, listed in found.items()]
    write_list(family, soname, header, lines + [f"{name} data {size}" for name, size in sorted(data.items())])


# Names that the sources above leave out: a header of their own, and older forms that programs still look up.
MORE_OF_DRIVER = {"cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop"}
MORE_OF_NVML = {"nvmlInit", "nvmlInit_v2", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByPciBusId",
                "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"}


def write_driver(site_packages):
    folders = [os.path.dirname(f) for f in glob.glob(f"{site_packages}/nvidia/*/include/cuda.h")]
    names = set()
    for mode in DRIVER_MODES:
        source = output_of("gcc", "-E", "-P", *mode.split(), *[f"-I{f}" for f in folders], f"{folders[0]}/cuda.h")
        names |= set(re.findall(r"CUresult\s+(cu[A-Z]\w+)\s*\(", source))
    package, version = wheel_version(site_packages, "cuda-runtime")
    header = [f"package {package.replace('_', '-')} {version}", "unknown_returns 801"]
    write_list("driver", "libcuda.so.1", header, sorted(names | MORE_OF_DRIVER))


def write_nvml(binding):
    with open(binding, encoding="utf-8") as source:
        names = set(re.findall(r"_nvmlGetFunctionPointer\(\s*[\"'](nvml\w+)[\"']\s*\)", source.read()))
    write_list("driver", "libnvidia-ml.so.1", ["unknown_returns 3"], sorted(names | MORE_OF_NVML))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=["cuda12", "cuda13"])
    parser.add_argument("site_packages")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--nvml")
    parser.add_argument("libraries", nargs="*", help="only these, as libnccl; default: all")
    options = parser.parse_args()
    if options.driver:
        write_driver(options.site_packages)
    if options.nvml:
        write_nvml(options.nvml)
    wanted = options.libraries or LIBRARIES
    for library in wanted:
        paths = glob.glob(f"{options.site_packages}/nvidia/*/lib/{library}.so.*[0-9]")
        if not paths:
            print(f"{library}: not in {options.site_packages}", file=sys.stderr)
        for path in paths:
            write_library(options.family, options.site_packages, path)


if __name__ == "__main__":
    main()
