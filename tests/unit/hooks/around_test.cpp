// around() against an interpreter of a few lines, which counts references: each call must leave as many as there were.
#include "hooks/python/around.h"

#include <gmock/gmock.h>

#include <cstdarg>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "hooks/python/cpython.h"

namespace liveset::python {

struct Object {
  std::string name;
  long references = 1;
  bool is_tuple = false;
  std::vector<Object*> items;                                    // of a tuple: owned
  std::function<Object*(const std::vector<Object*>&)> function;  // of a function of the job or the shim
  MethodDefinition* definition = nullptr;                        // of a builtin, with
  Object* self = nullptr;                                        // what it was made with
};

namespace {

using testing::ElementsAre;

long living = 0;
Object nothing{"None", 1'000'000};
Object* raised = nullptr;  // owned

Object* make(std::string name) {
  ++living;
  return new Object{std::move(name)};
}

Object* held(Object* object) {
  ++object->references;
  return object;
}

void release(Object* object) {
  if (--object->references != 0) return;
  --living;
  for (Object* item : object->items) release(item);
  if (object->self != nullptr) release(object->self);
  delete object;
}

Object* raise(const char* type) {
  if (raised != nullptr) release(raised);
  raised = make(type);
  return nullptr;
}

Object* tuple(const std::vector<Object*>& items) {
  Object* made = make("tuple");
  made->is_tuple = true;
  for (Object* item : items) made->items.push_back(held(item));
  return made;
}

Object* call(Object* function, const std::vector<Object*>& arguments) {
  if (function->function) return function->function(arguments);
  using WithKeywords = Object* (*)(Object*, Object*, Object*);
  const auto builtin = reinterpret_cast<WithKeywords>(reinterpret_cast<void (*)()>(function->definition->function));
  Object* packed = tuple(arguments);
  Object* result = builtin(function->self, packed, nullptr);
  release(packed);
  return result;
}

}  // namespace

// The interpreter's own, found as in a job.
extern "C" {
__attribute__((visibility("default"))) Object* PyObject_Call(Object* function, Object* arguments, Object*) {
  return call(function, arguments->items);
}
__attribute__((visibility("default"))) Object* PyObject_CallFunctionObjArgs(Object* function, ...) {
  std::vector<Object*> arguments;
  va_list list;
  va_start(list, function);
  while (Object* argument = va_arg(list, Object*)) arguments.push_back(argument);
  va_end(list);
  return call(function, arguments);
}
__attribute__((visibility("default"))) void PyErr_Fetch(Object** type, Object** error, Object** traceback) {
  *type = std::exchange(raised, nullptr);
  *error = *traceback = nullptr;
}
__attribute__((visibility("default"))) void PyErr_Restore(Object* type, Object*, Object*) { raised = type; }
__attribute__((visibility("default"))) Object* PyTuple_GetItem(Object* of, std::intptr_t place) {
  return of->items.at(static_cast<std::size_t>(place));
}
__attribute__((visibility("default"))) std::intptr_t PyTuple_Size(Object* of) {
  if (of->is_tuple) return static_cast<std::intptr_t>(of->items.size());
  raise("SystemError");
  return -1;
}
__attribute__((visibility("default"))) Object* PyTuple_Pack(std::intptr_t size, ...) {
  std::vector<Object*> items;
  va_list list;
  va_start(list, size);
  for (std::intptr_t i = 0; i < size; ++i) items.push_back(va_arg(list, Object*));
  va_end(list);
  return tuple(items);
}
__attribute__((visibility("default"))) int PyObject_IsTrue(Object* object) { return object->name == "False" ? 0 : 1; }
__attribute__((visibility("default"))) Object* PyInstanceMethod_New(Object* function) {
  Object* bound = make("instancemethod");
  bound->self = held(function);
  bound->function = [function](const std::vector<Object*>& arguments) { return call(function, arguments); };
  return bound;
}
}

namespace {

Object* new_function(MethodDefinition* definition, Object* self, Object*) {
  Object* made = make(definition->name);
  made->definition = definition;
  made->self = self != nullptr ? held(self) : nullptr;
  return made;
}

const CPython& interpreter() {
  static const CPython table = [] {
    CPython made{};
    made.new_function = new_function;
    made.error = [] { return raised; };
    made.clear_error = [] {
      if (raised != nullptr) release(std::exchange(raised, nullptr));
    };
    made.increase = [](Object* object) { ++object->references; };
    made.decrease = release;
    made.none = &nothing;
    return made;
  }();
  return table;
}

class Around : public testing::Test {
 protected:
  Around() {
    around_ = make_around(interpreter());
    living_ = living;
    nothings_ = nothing.references;
  }
  ~Around() override {
    EXPECT_EQ(raised, nullptr);
    EXPECT_EQ(living, living_);
    EXPECT_EQ(nothing.references, nothings_);
    release(around_);
  }

  // A function that writes down its arguments and gives what `answer` gives.
  Object* function(const std::string& name, std::function<Object*()> answer) {
    Object* made = make(name);
    made->function = [this, name, answer = std::move(answer)](const std::vector<Object*>& arguments) {
      std::string line = name;
      for (const Object* argument : arguments) line += " " + argument->name;
      calls_.push_back(line);
      return answer();
    };
    return made;
  }
  static Object* none() { return held(&nothing); }

  // Calls around(before, function, after[, replaces[, method]])(x); what it gives or raises. Null before or after: None.
  std::string called(std::function<Object*()> before, std::function<Object*()> function_answer, std::function<Object*()> after,
                     const char* replaces = nullptr, const char* method = nullptr) {
    const auto optional = [this](const char* name, std::function<Object*()> answer) {
      return answer ? function(name, std::move(answer)) : none();
    };
    std::vector<Object*> parts{optional("before", std::move(before)), function("function", std::move(function_answer)),
                               optional("after", std::move(after))};
    if (replaces != nullptr) parts.push_back(make(replaces));
    if (method != nullptr) parts.push_back(make(method));
    Object* wrapped = around_->definition->function(nullptr, parts.data(), static_cast<std::intptr_t>(parts.size()));
    for (Object* part : parts) release(part);
    wrapped_ = wrapped->name;
    Object* argument = make("x");
    Object* result = call(wrapped, {argument});
    release(argument);
    release(wrapped);
    std::string outcome = result != nullptr ? result->name : "no result";
    if (result != nullptr) release(result);
    if (raised != nullptr) {
      outcome += ", " + raised->name;
      release(std::exchange(raised, nullptr));
    }
    return outcome;
  }

  Object* around_ = nullptr;
  long living_ = 0, nothings_ = 0;
  std::vector<std::string> calls_;
  std::string wrapped_;
};

TEST_F(Around, BeforeTheFunctionAndAfterIt) {
  EXPECT_EQ(called([] { return make("token"); }, [] { return make("result"); }, none), "result");
  EXPECT_THAT(calls_, ElementsAre("before x", "function x", "after token None result"));
}

TEST_F(Around, TheFunctionsExceptionStaysItsOwn) {
  EXPECT_EQ(called([] { return make("token"); }, [] { return raise("ValueError"); }, none), "no result, ValueError");
  EXPECT_THAT(calls_, ElementsAre("before x", "function x", "after token ValueError None"));
}

TEST_F(Around, AnExceptionOfBeforeIsInPlaceOfTheCall) {
  EXPECT_EQ(called([] { return raise("KeyboardInterrupt"); }, [] { return make("result"); }, none), "no result, KeyboardInterrupt");
  EXPECT_THAT(calls_, ElementsAre("before x"));
}

TEST_F(Around, AnExceptionOfAfterIsInPlaceOfTheResult) {
  EXPECT_EQ(called(
                none, [] { return make("result"); }, [] { return raise("KeyboardInterrupt"); }),
            "no result, KeyboardInterrupt");
  EXPECT_EQ(called(
                none, [] { return raise("ValueError"); }, [] { return raise("KeyboardInterrupt"); }),
            "no result, KeyboardInterrupt");
}

TEST_F(Around, BeforeMayGiveOtherArguments) {
  const auto before = [] {
    Object *token = make("token"), *other = make("y"), *arguments = tuple({other, other});
    Object* both = tuple({token, arguments});
    for (Object* object : {token, other, arguments}) release(object);
    return both;
  };
  EXPECT_EQ(called(
                before, [] { return make("result"); }, none, "True"),
            "result");
  EXPECT_THAT(calls_, ElementsAre("before x", "function y y", "after token None result"));
}

TEST_F(Around, WithoutOtherArgumentsTheCallGoesOnAsItWasMade) {
  EXPECT_EQ(called(
                none, [] { return make("result"); }, none, "True"),
            "result");  // no tuple
  const auto three = [] { return tuple({&nothing, &nothing, &nothing}); };
  EXPECT_EQ(called(
                three, [] { return make("result"); }, none, "True"),
            "result");
  EXPECT_THAT(calls_, ElementsAre("before x", "function x", "after None None result", "before x", "function x", "after None None result"));
}

TEST_F(Around, AFalseFourthArgumentIsNone) {
  EXPECT_EQ(called([] { return make("token"); }, [] { return make("result"); }, none, "False"), "result");
  EXPECT_THAT(calls_, ElementsAre("before x", "function x", "after token None result"));
}

TEST_F(Around, WithoutBeforeTheTokenIsTheArguments) {
  EXPECT_EQ(called(
                nullptr, [] { return make("result"); }, none),
            "result");
  EXPECT_EQ(called(
                nullptr, [] { return raise("ValueError"); }, none),
            "no result, ValueError");
  EXPECT_THAT(calls_, ElementsAre("function x", "after tuple None result", "function x", "after tuple ValueError None"));
}

TEST_F(Around, WithoutAfterTheFunctionEndsIt) {
  EXPECT_EQ(called([] { return make("token"); }, [] { return make("result"); }, nullptr), "result");
  EXPECT_EQ(called([] { return make("token"); }, [] { return raise("ValueError"); }, nullptr), "no result, ValueError");
  EXPECT_THAT(calls_, ElementsAre("before x", "function x", "before x", "function x"));
}

TEST_F(Around, AMethodIsBoundByItsClass) {
  EXPECT_EQ(called([] { return make("token"); }, [] { return make("result"); }, none, "False", "True"), "result");
  EXPECT_EQ(wrapped_, "instancemethod");
  EXPECT_EQ(called([] { return make("token"); }, [] { return make("result"); }, none, "False", "False"), "result");
  EXPECT_EQ(wrapped_, "liveset_around");
}

TEST_F(Around, AnythingElseMakesNothing) {
  Object* made = around_->definition->function(nullptr, nullptr, 0);
  EXPECT_EQ(made, &nothing);
  release(made);
}

}  // namespace
}  // namespace liveset::python
