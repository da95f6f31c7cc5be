#!/usr/bin/env python3
"""Proves that each check of lint.py fails on what it is there for, and passes on what it allows."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint


class Tree:
    """A source tree: {path: text}."""

    def __init__(self, files):
        self.files = files

    def complaints(self, check):
        with tempfile.TemporaryDirectory() as root:
            for name, text in self.files.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)
            return lint.CHECKS[check](root)


class Includes(unittest.TestCase):
    def refused(self, name, include):
        self.assertEqual(1, len(Tree({name: f"#include {include}\n"}).complaints("includes")), f"{name} includes {include}")

    def allowed(self, name, include):
        self.assertEqual([], Tree({name: f"#include {include}\n"}).complaints("includes"))

    def test_nothing_looks_back(self):
        self.refused("viewer/ledger/a.cpp", '"hooks/core/recorder.h"')
        self.refused("viewer/cli/a.cpp", '"profiler/writer/trace_writer.h"')
        self.refused("viewer/trace/a.cpp", '"viewer/ledger/range.h"')
        self.refused("hooks/core/a.cpp", '"profiler/collect/collector.h"')
        self.refused("hooks/core/a.cpp", '"proto/trace.pb.h"')
        self.refused("profiler/writer/a.h", '"viewer/trace/records.h"')
        self.refused("proto/a.h", '"viewer/trace/records.h"')
        self.refused("viewer/ledger/a.cpp", '"tests/support/train_pattern.h"')
        self.refused("samples/tanh_chain/a.cpp", '"viewer/model/model.h"')
        self.refused("profiler/launch/a.cpp", '"profiler/channel/layout.h"')
        self.refused("profiler/collect/a.cpp", '"proto/trace.pb.h"')

    def test_sources_of_events_stand_beside_each_other(self):
        self.refused("hooks/core/a.cpp", '"hooks/api/table.h"')
        self.refused("hooks/c10/a.cpp", '"hooks/python/install.h"')
        self.refused("hooks/api/a.cpp", '"hooks/c10/memory_reports.h"')
        self.allowed("hooks/python/a.cpp", '"hooks/c10/memory_reports.h"')
        self.allowed("hooks/preload.cpp", '"hooks/python/install.h"')

    def test_what_the_house_plan_allows(self):
        self.allowed("viewer/cli/run.cpp", '"profiler/launch/run.h"')
        self.allowed("viewer/ledger/a.cpp", '"viewer/trace/records.h"')
        self.allowed("hooks/c10/a.cpp", '"hooks/core/recorder.h"')
        self.allowed("hooks/core/a.cpp", '"profiler/channel/ring.h"')
        self.allowed("samples/tanh_chain/a.cpp", '"hooks/api/liveset.hpp"')
        self.allowed("tests/unit/a.cpp", '"profiler/writer/trace_writer.h"')

    def test_packages_have_one_home(self):
        self.refused("profiler/collect/a.h", "<spdlog/spdlog.h>")
        self.allowed("profiler/collect/a.cpp", "<spdlog/spdlog.h>")
        self.refused("viewer/ledger/a.cpp", "<spdlog/spdlog.h>")
        self.refused("hooks/core/a.cpp", "<absl/container/flat_hash_map.h>")
        self.refused("viewer/ledger/a.cpp", "<zstd.h>")
        self.refused("viewer/cli/a.cpp", "<google/protobuf/message.h>")
        self.refused("viewer/report/a.cpp", "<absl/container/flat_hash_map.h>")
        self.allowed("viewer/ledger/a.cpp", "<absl/container/flat_hash_map.h>")
        self.refused("hooks/c10/a.cpp", "<c10/core/Device.h>")
        self.refused("hooks/python/a.cpp", "<Python.h>")

    def test_the_job_has_libc_only(self):
        self.refused("hooks/core/a.cpp", "<string>")
        self.refused("hooks/core/a.h", "<iostream>")
        self.allowed("hooks/core/a.cpp", "<atomic>")
        self.allowed("hooks/core/a.cpp", "<sys/mman.h>")
        self.allowed("hooks/api/liveset.hpp", "<string>")


class Others(unittest.TestCase):
    def test_lengths(self):
        self.assertEqual([], Tree({"viewer/a.cpp": "\n" * 800}).complaints("lengths"))
        self.assertEqual(1, len(Tree({"viewer/a.cpp": "\n" * 801}).complaints("lengths")))

    def test_documents(self):
        good = "See `viewer/trace/a.h`, `viewer/trace/`, `build/release/bin/liveset`, `viewer/*/a.h`, [here](viewer/trace/a.h).\n"
        self.assertEqual([], Tree({"viewer/trace/a.h": "", "R.md": good}).complaints("documents"))
        bad = "`viewer/trace/b.h`\n[there](b.md)\n`viewer/run --fast`\n"
        self.assertEqual(3, len(Tree({"viewer/trace/a.h": "", "R.md": bad}).complaints("documents")))

    def test_documents_beside_what_they_name(self):
        tree = Tree({"samples/x/train.py": "", "samples/x/README.md": "`train.py` and [it](train.py)\n"})
        self.assertEqual([], tree.complaints("documents"))

    def test_text(self):
        self.assertEqual([], Tree({"a.py": "see tests/work/here and ${HOME}/root/x\n"}).complaints("text"))
        self.assertEqual(1, len(Tree({"a.py": "open('/home/someone/x')\n"}).complaints("text")))
        self.assertEqual(1, len(Tree({"a.cpp": "// TODO finish\n"}).complaints("text")))
        self.assertEqual(1, len(Tree({"scripts/setup": "pip install --index-url X torch\n"}).complaints("text")))
        self.assertEqual(1, len(Tree({"scripts/setup": "curl https://example.org\n"}).complaints("text")))
        self.assertEqual([], Tree({"README.md": "https://example.org\n"}).complaints("text"))

    def test_format(self):
        style = {".clang-format": "BasedOnStyle: Google\n"}
        bad = Tree({**style, "a.cpp": "int  main( ){return 0;}\n"}).complaints("format")
        if not bad and not lint.shutil.which("clang-format-14"):
            self.skipTest("clang-format 14 is not installed")
        self.assertEqual(1, len(bad))
        self.assertEqual([], Tree({**style, "a.cpp": "int main() { return 0; }\n"}).complaints("format"))


if __name__ == "__main__":
    unittest.main()
