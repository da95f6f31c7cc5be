#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "hooks/standin/model/images.h"
#include "tests/unit/standin/machine.h"

namespace standin {
namespace {

constexpr const char* ptx =
    "//\n// made by hand\n.version 8.0\n.target sm_90\n.address_size 64\n.visible .entry add_one(\n\t.param .u64 p)\n{ ret; }\n.entry  two "
    "{}";

// An ELF file of 64 bits with the section names "", ".text.add", ".data" and its own.
std::vector<char> cubin() {
  const char names[] = "\0.text.add\0.data\0.shstrtab";
  constexpr std::size_t header = 64, section = 64, count = 4;
  std::vector<char> file(header + section * count + sizeof names);
  auto put = [&file](std::size_t place, auto value) { std::memcpy(file.data() + place, &value, sizeof value); };
  std::memcpy(file.data(), "\177ELF\2\1\1", 7);
  put(0x28, std::uint64_t{header});
  put(0x3a, std::uint16_t{section});
  put(0x3c, std::uint16_t{count});
  put(0x3e, std::uint16_t{3});
  const std::uint32_t name_of[] = {0, 1, 11, 17};
  for (std::size_t i = 0; i < count; ++i) put(header + i * section, name_of[i]);
  put(header + 3 * section + 0x18, std::uint64_t{header + section * count});
  std::memcpy(file.data() + header + section * count, names, sizeof names);
  return file;
}

TEST(Images, TellTheirKernels) {
  EXPECT_EQ(kernels_in(ptx), (std::set<std::string>{"add_one", "two"}));
  EXPECT_EQ(kernels_in(cubin().data()), std::set<std::string>{"add"});
  EXPECT_EQ(kernels_in("\x50\xed\x55\xba"), std::nullopt);  // a fat binary
}

TEST(Modules, HaveTheKernelsOfTheirImage) {
  Machine machine(small_device());
  Module* module = nullptr;
  Function *function = nullptr, *again = nullptr;
  ASSERT_EQ(machine.modules.load(ptx, true, &module), success);
  EXPECT_EQ(machine.modules.function(module, "add_two", &function), not_found);
  ASSERT_EQ(machine.modules.function(module, "add_one", &function), success);
  ASSERT_EQ(machine.modules.function(module, "add_one", &again), success);
  EXPECT_EQ(function, again);
  EXPECT_TRUE(machine.modules.is_function(function));
  EXPECT_EQ(machine.modules.unload(module), success);
  EXPECT_FALSE(machine.modules.is_function(function));
  EXPECT_EQ(machine.modules.function(module, "add_one", &function), invalid_handle);
  EXPECT_EQ(machine.modules.load(nullptr, true, &module), invalid_value);
}

TEST(Modules, VariablesCostTheDeviceNothing) {
  Machine machine(small_device());
  Module* module = nullptr;
  Variable variable;
  ASSERT_EQ(machine.modules.load("x", true, &module), success);
  EXPECT_EQ(machine.modules.variable(module, "table", 0, &variable), not_found);
  ASSERT_EQ(machine.modules.variable(module, "table", 400, &variable), success);
  EXPECT_EQ(variable.bytes, 400u);
  EXPECT_EQ(machine.memory.used(0), 0u);
  EXPECT_TRUE(machine.memory.find(variable.address));
  EXPECT_EQ(machine.modules.unload(module), success);
  EXPECT_FALSE(machine.memory.find(variable.address));
}

}  // namespace
}  // namespace standin
