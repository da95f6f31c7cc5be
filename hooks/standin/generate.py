#!/usr/bin/env python3
"""Makes the source and the version script of one stand-in library from its list of names (hooks/standin/exports). Run by the build.

    generate.py LIST --source OUT.c --map OUT.map [--family N] [--table] [--export PATTERN]...

Every function of the list gets a body that counts its calls and does what its action says (the format of a list is told in
exports/update.py). The bodies are weak: a function that has one of its own, written in C++, takes its place when the library is
linked, so lists and sources need not know of each other. --export adds names to the version script that are not in the list; --table adds an array of all functions by name.
"""
import argparse
import os
import sys

PROLOGUE = """// Made by hooks/standin/generate.py from {source}. Do not edit.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct LivesetStandinStubs {{
  const char* library;
  const char* const* names;
  uint32_t* calls;
  uint32_t count;
}};
void liveset_standin_register(struct LivesetStandinStubs*);
void liveset_standin_unknown(const struct LivesetStandinStubs*, uint32_t);
void liveset_standin_estimate(const char*, const char*);
void liveset_standin_copy(void*, const void*, size_t);

// What the library says of itself: hooks/standin/libraries/library.h.
__attribute__((visibility("hidden"))) const int liveset_standin_family = {family};
__attribute__((visibility("hidden"))) const int liveset_standin_release[4] = {{{release}}};

static uint32_t calls[{count}];
static const char* const names[{count}];
static struct LivesetStandinStubs stubs = {{"{library}", names, calls, {count}}};
__attribute__((constructor)) static void register_stubs(void) {{ liveset_standin_register(&stubs); }}
static void unknown(uint32_t function) {{
  if (!__atomic_fetch_add(&calls[function], 1, __ATOMIC_RELAXED)) liveset_standin_unknown(&stubs, function);
}}
static void known(uint32_t function) {{ __atomic_fetch_add(&calls[function], 1, __ATOMIC_RELAXED); }}
static void assumed(uint32_t function) {{
  known(function);
  liveset_standin_estimate("workspace", names[function]);
}}
static void create(void** handle) {{
  if (handle) *handle = calloc(1, 64);
}}
static void zero_bytes(size_t* size) {{
  if (size) *size = 0;
}}
static void zero_int(int* size) {{
  if (size) *size = 0;
}}
static void zeros(void* to, int count) {{
  static const int none[256];
  for (int* next = to; next && count > 0; next += 256, count -= 256) liveset_standin_copy(next, none, (count < 256 ? count : 256) * sizeof(int));
}}
static void zero(void* to) {{ zeros(to, 1); }}
#define STUB __attribute__((weak))
"""
# Action with an argument -> (its type, the function that gets it); `zeros` has the number of the count as a second argument.
FILLS = {"create": ("void**", "create"), "free": ("void*", "free"), "bytes": ("size_t*", "zero_bytes"), "int": ("int*", "zero_int"),
         "zero": ("void*", "zero"), "zeros": ("void*", "zeros")}


class Listed:
    """One list: what it says of the library, its functions as (name, [action, ...]) and its data as (name, size)."""

    def __init__(self, path):
        self.path = path
        self.library = os.path.basename(path)[:-len(".txt")]
        self.node, self.version, self.unknown_returns = None, "0", 0
        self.functions, self.data = [], []
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                fields = line.split()
                if fields and not line.startswith("#"):
                    self.read(fields, f"{path}:{number}")

    def read(self, fields, place):
        keyword, values = fields[0], fields[1:]
        if keyword == "package":
            self.version = values[1]
        elif keyword == "node":
            self.node = values[0]
        elif keyword == "unknown_returns":
            self.unknown_returns = int(values[0])
        elif values[:1] == ["data"]:
            self.data.append((keyword, int(values[1])))
        else:
            self.functions.append((keyword, self.actions(values, place)))

    @staticmethod
    def actions(values, place):
        found = []
        while values:
            action = values.pop(0)
            if action == "zeros":
                found.append((action, [int(values.pop(0)), int(values.pop(0))]))
            elif action in FILLS:
                found.append((action, [int(values.pop(0))]))
            elif action in ("ok", "text"):
                found.append((action, []))
            else:
                sys.exit(f"{place}: unknown action {action}")
        return found


def body(index, name, actions, unknown_returns):
    """C source of one function."""
    kinds = [kind for kind, _ in actions]
    if not actions:
        return f"STUB long {name}(void) {{ unknown({index}); return {unknown_returns}; }}"
    if "text" in kinds:
        return f'STUB const char* {name}(void) {{ known({index}); return "stand-in"; }}'
    types = {positions[0]: FILLS[kind][0] for kind, positions in actions if positions}
    last = max((max(positions) for _, positions in actions if positions), default=-1)
    parameters = ", ".join(f"{types.get(i, 'long')} a{i}" for i in range(last + 1))
    count = "assumed" if {"bytes", "int"} & set(kinds) else "known"
    statements = "".join(f" {FILLS[kind][1]}({', '.join(f'a{i}' for i in positions)});" for kind, positions in actions if positions)
    return f"STUB long {name}({parameters or 'void'}) {{ {count}({index});{statements} return 0; }}"


def source(listed, family):
    release = (listed.version.split(".") + ["0"] * 4)[:4]
    count = max(1, len(listed.functions))
    lines = [PROLOGUE.format(source=os.path.basename(listed.path), family=family, release=", ".join(str(int(part)) for part in release),
                             library=listed.library, count=count)]
    lines += [body(index, name, actions, listed.unknown_returns) for index, (name, actions) in enumerate(listed.functions)]
    lines += [f"STUB _Alignas(16) char {name}[{size}];" for name, size in listed.data]
    lines.append(f"static const char* const names[{count}] = {{" + ",\n".join(f'"{name}"' for name, _ in listed.functions) + "};")
    return "\n".join(lines) + "\n"


def table(listed):
    """The functions by name, sorted, for a library that looks them up itself."""
    rows = "".join(f'  {{"{name}", (void*){name}}},\n' for name, _ in sorted(listed.functions))
    return (f"const struct {{ const char* name; void* function; }} liveset_standin_symbols[] = {{\n{rows}}};\n"
            f"const unsigned liveset_standin_symbol_count = {len(listed.functions)};\n")


def version_script(listed, extra):
    names = [name for name, _ in listed.functions] + [name for name, _ in listed.data] + extra
    return f"{listed.node or ''} {{\n  global:\n" + "".join(f"    {name};\n" for name in names) + "  local: *;\n};\n"


def write_if_changed(path, text):
    """Keeps the time stamp of an unchanged file, so that nothing is built again."""
    try:
        with open(path, encoding="utf-8") as present:
            if present.read() == text:
                return
    except FileNotFoundError:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list")
    parser.add_argument("--source", required=True)
    parser.add_argument("--map", required=True)
    parser.add_argument("--family", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--export", action="append", default=[])
    options = parser.parse_args()
    listed = Listed(options.list)
    write_if_changed(options.source, source(listed, options.family) + (table(listed) if options.table else ""))
    write_if_changed(options.map, version_script(listed, options.export))


if __name__ == "__main__":
    main()
