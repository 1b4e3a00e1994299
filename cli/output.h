// Files and folders that appear whole or not at all; those of one command together or not at all.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "array.h"

namespace binmoe::cli {

/// The outputs of one command. Each is written beside its target under a temporary name; commit() puts all in place,
/// and takes all back when one cannot be. What was not committed is removed by the destructor.
class Outputs {
 public:
  Outputs() = default;
  ~Outputs();
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  /// Announce an output before the work starts. An existing folder is replaced when it holds nothing but `members`.
  /// Errors: Failure when it can be seen already that the output cannot be put in place.
  void add_file(const std::filesystem::path& target);
  void add_folder(const std::filesystem::path& target, std::span<const std::string> members);

  /// Write output number `index`, in the order of the adds; for a folder, the file `name` in it.
  void write(size_t index, const Array& array, const std::string& name = "");
  void write_text(size_t index, std::string_view text, const std::string& name);

  void commit();

 private:
  struct Output {
    std::filesystem::path target;  ///< symbolic links resolved
    std::filesystem::path temporary;
    std::string name;  ///< as the user wrote it
    bool folder = false;
    bool started = false;
    bool committed = false;
    bool replaced = false;  ///< an older one stands under the temporary name now
  };
  void add(const std::filesystem::path& target, bool folder, std::span<const std::string> members);
  std::filesystem::path path_for(size_t index, const std::string& name);
  void take_back() noexcept;

  std::vector<Output> outputs_;
};

}  // namespace binmoe::cli
