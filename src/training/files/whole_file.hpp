// whole_file.hpp: the few things that model files need of the operating system, with its reasons as
// Status: whole small files, and files that appear complete or not at all.
//
// Knows nothing of what is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "training/files/output_file.hpp"
#include "tutti/status.hpp"

namespace tutti::training {

// "cannot open PATH: No such file or directory", by errno.
Status system_failure(std::string_view verb, std::string_view path);

// Errors  system_error; corrupt_data: longer than `bytes_max`.
Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max);

// Writes by way of PATH.tmp; the text is on the disk when it returns. Errors  system_error.
Status write_text_file(const std::string& path, std::string_view text);

// All of `bytes`, from byte `at` of an open file; `path` is for the error's text.
Status write_at(int file, std::string_view path, std::uint64_t at,
                std::span<const std::byte> bytes);

// Renames, and returns when the new name is on the disk. Errors  system_error.
Status rename_durably(const std::string& from, const std::string& to);

// The same for a folder, which may take the place of another: that one is there until this one is,
// and then has the name `from`. Errors  system_error.
Status replace_folder_durably(const std::string& from, const std::string& to);

// Removes a file; one that does not exist is fine. Errors  system_error.
Status remove_file(const std::string& path);

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace tutti::training
