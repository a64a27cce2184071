// output_file.hpp: files as the data and report parts use them: written whole, errors by name.
//
// Knows no format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/status.hpp"

namespace tutti::training {

// "cannot open 'x.bin': No such file or directory", of errno. Code  system_error.
Status file_error(std::string_view what, std::string_view path);

// An open file, closed by its last owner's end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  bool close();  // false: the system could not store all of it

 private:
  int number_ = -1;
};

// A file that is written from front to back. Each write() is one call to the system, so that lines
// of several writers to one appended file stay whole.
//
// Errors  system_error, naming the path; open(), invalid_argument for one that is not fresh.
class OutputFile {
 public:
  enum class Mode : unsigned char {
    replace,  // begin an empty file, whatever was there
    append,   // go on at the end of what is there
    fresh,    // the file must not be there yet
  };
  static Result<OutputFile> open(std::string path, Mode mode);

  Status write(std::string_view bytes);
  Status write_at(std::uint64_t offset, std::string_view bytes);  // not in Mode::append
  Status truncate(std::uint64_t bytes);
  Status close();
  const std::string& path() const { return path_; }

 private:
  OutputFile(Descriptor descriptor, std::string path)
      : descriptor_(std::move(descriptor)), path_(std::move(path)) {}

  Descriptor descriptor_;
  std::string path_;
};

// The whole file. Errors  system_error; corrupt_data when it is longer than `bytes_max`.
Result<std::string> read_file(const std::string& path, std::uint64_t bytes_max);

// Puts a file of these bytes in place of what was there; a reader sees the old one or the new one.
Status write_file(const std::string& path, std::string_view bytes);

// Moves a finished file to its name, in place of what was there.
Status rename_file(const std::string& from, const std::string& to);

// Makes the folder and those above it, where they are missing.
Status make_folder(const std::string& path);

}  // namespace tutti::training
