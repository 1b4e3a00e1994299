#include "output.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "failure.h"
#include "npy.h"

namespace binmoe::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& name, const std::string& reason) {
  throw Failure(kBadData, name + ": cannot be written: " + reason);
}

/// A file that is created anew; every error is reported, that of close included.
class NewFile {
 public:
  NewFile(const fs::path& path, const std::string& name) : name_(name) {
    handle_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (handle_ < 0) refuse(name_, std::strerror(errno));
  }
  ~NewFile() {
    if (handle_ >= 0) ::close(handle_);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(handle_, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) refuse(name_, std::strerror(errno));
      bytes.remove_prefix(static_cast<size_t>(done));
    }
  }
  void close() {
    const int handle = std::exchange(handle_, -1);
    if (::close(handle) != 0) refuse(name_, std::strerror(errno));
  }

 private:
  std::string name_;
  int handle_ = -1;
};

/// Exchange two paths; by three renames where the file system cannot do it in one step. 0 or errno.
int exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) return errno;
  const fs::path aside = a.string() + ".old";
  if (::rename(b.c_str(), aside.c_str()) != 0) return errno;
  if (::rename(a.c_str(), b.c_str()) != 0) {
    const int error = errno;
    if (::rename(aside.c_str(), b.c_str()) != 0) return errno;
    return error;
  }
  return ::rename(aside.c_str(), a.c_str()) == 0 ? 0 : errno;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

/// Where the output will stand: an existing file behind symbolic links, or a name in an existing folder.
fs::path resolve(const fs::path& target, const std::string& name) {
  std::error_code error;
  fs::path wanted = target;
  if (!wanted.has_filename()) wanted = wanted.parent_path();  // "DIR/"
  if (wanted.empty()) refuse(name, "the name is empty");
  if (fs::path there = fs::canonical(wanted, error); !error) return there;
  const fs::path parent = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  const fs::path folder = fs::canonical(parent, error);
  if (error || !fs::is_directory(folder, error)) refuse(name, "there is no folder " + parent.string());
  return folder / wanted.filename();
}

void check_folder(const fs::path& target, const std::string& name, std::span<const std::string> members) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(target, error)) {
    const std::string found = entry.path().filename().string();
    if (std::find(members.begin(), members.end(), found) == members.end())
      refuse(name, "the folder holds " + found + "; only an earlier plan or an empty folder is replaced");
  }
  if (error) refuse(name, error.message());
}

}  // namespace

void Outputs::add_file(const fs::path& target) {
  add(target, false, {});
}

void Outputs::add_folder(const fs::path& target, std::span<const std::string> members) {
  add(target, true, members);
}

void Outputs::add(const fs::path& target, bool folder, std::span<const std::string> members) {
  Output output;
  output.name = target.string();
  output.folder = folder;
  output.target = resolve(target, output.name);
  const fs::path parent = output.target.parent_path();
  std::error_code error;
  const fs::file_status status = fs::status(output.target, error);
  if (fs::exists(status)) {
    if (!folder && fs::is_directory(status)) refuse(output.name, "it is a folder");
    if (!folder && !fs::is_regular_file(status)) refuse(output.name, "it is not a regular file");
    if (folder && !fs::is_directory(status)) refuse(output.name, "it is a file, but a folder was asked for");
    if (folder && output.target == output.target.root_path()) refuse(output.name, "it is the root folder");
    if (folder) check_folder(output.target, output.name, members);
  }
  if (::access(parent.c_str(), W_OK | X_OK) != 0) refuse(output.name, std::strerror(errno));
  for (const Output& other : outputs_)
    if (other.target == output.target) throw Failure(kBadUsage, output.name + ": two outputs cannot have one name");
  output.temporary = parent / ("." + output.target.filename().string().substr(0, 200) + ".binmoe-" +
                               std::to_string(::getpid()) + "-" + std::to_string(outputs_.size()));
  outputs_.push_back(output);
}

fs::path Outputs::path_for(size_t index, const std::string& name) {
  Output& output = outputs_[index];
  if (output.folder && !output.started) {
    std::error_code error;
    if (!fs::create_directory(output.temporary, error))
      refuse(output.name, error ? error.message() : output.temporary.string() + " is in the way");
  }
  const fs::path path = output.folder ? output.temporary / name : output.temporary;
  if (!output.folder && is_there(path)) refuse(output.name, path.string() + " is in the way");
  output.started = true;
  return path;
}

void Outputs::write(size_t index, const Array& array, const std::string& name) {
  NewFile file(path_for(index, name), outputs_[index].name);
  file.write(npy::make_header(array.type.descr, array.shape, array.version));
  file.write({array.data.get(), static_cast<size_t>(array.bytes)});
  file.close();
}

void Outputs::write_text(size_t index, std::string_view text, const std::string& name) {
  NewFile file(path_for(index, name), outputs_[index].name);
  file.write(text);
  file.close();
}

void Outputs::commit() {
  for (Output& output : outputs_) {
    output.replaced = is_there(output.target);
    const int error = output.replaced ? exchange(output.temporary, output.target)
                      : ::rename(output.temporary.c_str(), output.target.c_str()) == 0 ? 0
                                                                                       : errno;
    if (error != 0) {
      take_back();
      refuse(output.name, std::strerror(error));
    }
    output.committed = true;
  }
}

void Outputs::take_back() noexcept {
  for (Output& output : outputs_) {
    if (!output.committed) continue;
    if (output.replaced) {
      if (exchange(output.temporary, output.target) != 0) {
        output.started = false;  // the older one is under the temporary name: keep it
        continue;
      }
    } else if (::rename(output.target.c_str(), output.temporary.c_str()) != 0) {
      continue;
    }
    output.committed = false;
  }
}

Outputs::~Outputs() {
  std::error_code ignored;
  for (const Output& output : outputs_)
    if (output.started && (!output.committed || output.replaced)) fs::remove_all(output.temporary, ignored);
}

}  // namespace binmoe::cli
