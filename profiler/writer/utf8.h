// Protobuf's `string` must be UTF-8; what comes from a job need not be.
#pragma once
#include <string>
#include <string_view>

namespace liveset::writer {

// `text` with every byte that is no part of a well-formed UTF-8 sequence replaced by "?".
std::string valid_utf8(std::string_view text);

}  // namespace liveset::writer
