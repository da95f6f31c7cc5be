// around(before, function, after): a callable that stands in the place of `function`, without a frame of Python's: none of ours is in
// the job's tracebacks, and a warning names the job's line.
#pragma once

namespace liveset::python {

struct CPython;
struct Object;

// It calls before(*arguments, **keywords) -> token, the function, and after(token, type of its exception or None, its result or None),
// and gives what the function gave. Exceptions of before and after are the job's own (a signal handler that ran meanwhile): they pass.
// around(before, function, after, True): before gives (token, arguments for the function). With None for before the token is the tuple of
// the arguments; after may be None too.
// around(before, function, after, replaces, True): what a class has as a method.
// Null, with no error set, where the interpreter lacks a function that this needs.
Object* make_around(const CPython& py);

}  // namespace liveset::python
