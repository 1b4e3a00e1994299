// The text of Context::options: "key=value,key=value".
#pragma once

#include <string>
#include <string_view>

namespace binmoe {

/// Call apply(key, value) for each pair; it returns what is wrong with the pair, or an empty string. So does this.
template <class Apply>
std::string apply_options(std::string_view options, const Apply& apply) {
  while (!options.empty()) {
    const std::string_view pair = options.substr(0, options.find(','));
    options.remove_prefix(pair.size() < options.size() ? pair.size() + 1 : pair.size());
    const size_t equals = pair.find('=');
    const auto value = equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1);
    if (std::string complaint = apply(pair.substr(0, equals), value); !complaint.empty()) return complaint;
  }
  return "";
}

}  // namespace binmoe
