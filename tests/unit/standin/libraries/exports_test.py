#!/usr/bin/env python3
"""The stand-in libraries export what the real ones do: names, kinds and symbol versions.

usage: exports_test.py STANDIN_FOLDER

Every library is compared with its list (hooks/standin/exports), and with NVIDIA's own where the Python of the torch tests has it.
"""
import glob
import importlib.util
import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "..", ".."))
STANDIN = sys.argv.pop(1) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "release", "lib", "liveset", "standin")


def load(name):
    spec = importlib.util.spec_from_file_location(os.path.basename(name), os.path.join(ROOT, "hooks", "standin", name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load("generate")
update = load("exports/update")


def lists():
    return sorted(glob.glob(os.path.join(ROOT, "hooks", "standin", "exports", "*", "*.txt")))


def built(list_path):
    folder = os.path.basename(os.path.dirname(list_path))
    return os.path.join(STANDIN, folder, os.path.basename(list_path)[:-len(".txt")])


def dynamic(path):
    """SONAME and needed libraries."""
    text = subprocess.run(["readelf", "-W", "-d", path], capture_output=True, text=True, check=True).stdout
    return re.search(r"SONAME.*\[(.*)\]", text)[1], re.findall(r"NEEDED.*\[(.*)\]", text)


class Exports(unittest.TestCase):
    def test_every_list_has_its_library(self):
        self.assertGreater(len(lists()), 30)
        for path in lists():
            with self.subTest(list=os.path.relpath(path, ROOT)):
                self.assertTrue(os.path.exists(built(path)), built(path))

    def test_exports_exactly_its_list(self):
        for path in lists():
            if not os.path.exists(built(path)):
                continue
            listed = generate.Listed(path)
            node, functions, data = update.exported(built(path))
            ours = {name for name in functions if name.startswith("liveset_standin_")}  # interface.h, the driver only
            with self.subTest(list=os.path.relpath(path, ROOT)):
                self.assertEqual(functions - ours, {name for name, _ in listed.functions})
                self.assertEqual(data, dict(listed.data))
                self.assertEqual(node, listed.node)
                self.assertEqual(dynamic(built(path))[0], listed.library)

    def test_shows_nothing_else_and_brings_its_runtime(self):
        for path in lists():
            if not os.path.exists(built(path)):
                continue
            with self.subTest(list=os.path.relpath(path, ROOT)):
                needed = set(dynamic(built(path))[1])
                self.assertLessEqual(needed, {"libcuda.so.1", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"})
                text = subprocess.run(["nm", "-D", "--defined-only", built(path)], capture_output=True, text=True, check=True).stdout
                self.assertNotIn(" _Z", text)

    def test_every_written_body_replaces_a_generated_one(self):
        names = {name for path in lists() for name, _ in generate.Listed(path).functions}
        for path in glob.glob(os.path.join(ROOT, "hooks", "standin", "libraries", "*.cpp")):
            with open(path, encoding="utf-8") as source:
                bodies = source.read().rpartition("}  // namespace\n")[2]
            exported = re.findall(r"^(?:int|void|std::size_t|const char\*) (\w+)\([^;]*?\) \{", bodies, flags=re.M | re.S)
            self.assertTrue(exported, path)
            for name in exported:
                with self.subTest(body=f"{os.path.basename(path)}: {name}"):
                    self.assertIn(name, names)


class RealLibraries(unittest.TestCase):
    """Against NVIDIA's wheels beside torch; nothing of them is loaded."""

    def test_no_name_is_missing(self):
        compared = 0
        real_libraries = self.real_libraries()
        for path in lists():
            listed = generate.Listed(path)
            real = real_libraries.get((os.path.basename(os.path.dirname(path)), listed.library))
            if not real:
                continue
            node, functions, data = update.exported(real)
            compared += 1
            with self.subTest(library=os.path.basename(real)):
                self.assertEqual(functions - {name for name, _ in listed.functions}, set())
                self.assertEqual(set(data) - {name for name, _ in listed.data}, set())
                self.assertEqual(node, listed.node)
        if compared == 0:
            self.skipTest("no NVIDIA library in the Python of the torch tests")
        print(f"compared {compared} libraries with NVIDIA's")

    @staticmethod
    def real_libraries():
        """Paths of NVIDIA's libraries by (family, SONAME); the runtime tells the family."""
        python = os.environ.get("LIVESET_PYTHON") or os.path.join(ROOT, "build", "venv", "bin", "python")
        if not os.path.exists(python):
            return {}
        paths = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], capture_output=True, text=True)
        found = glob.glob(os.path.join(paths.stdout.strip(), "nvidia", "*", "lib", "lib*.so.*"))
        runtime = [path.rpartition(".")[2] for path in found if os.path.basename(path).startswith("libcudart.so.")]
        return {("cuda" + runtime[0], os.path.basename(path)): path for path in found} if runtime else {}


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=1).result
    for _, reason in result.skipped:
        print(f"SKIPPED: {reason}")
    sys.exit(not result.wasSuccessful())
