// Does not compile alone, on purpose: std::uint32_t needs <cstdint>. lint.header_check_can_fail compiles it.
#pragma once
inline std::uint32_t first_of(const std::uint32_t* numbers) { return numbers[0]; }
