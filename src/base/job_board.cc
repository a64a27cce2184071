// The board is a header and one word for each rank: 0, or how the rank ended.
#include "base/job_board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tutti::base {
namespace {

constexpr std::uint64_t kMagic = 0x31647261426f626a;  // "jboBard1"
constexpr std::uint32_t kEnded = 1U << 31;

Status failure(const char* what) {
  return Status(StatusCode::system_error, fmt::format("{}: {}", what, std::strerror(errno)));
}

std::uint32_t word_of(const RankEnding& ending) {
  return kEnded | (static_cast<std::uint32_t>(ending.signal) & 0xff) << 8 |
         (static_cast<std::uint32_t>(ending.code) & 0xff);
}

}  // namespace

struct JobBoard::Page {
  std::uint64_t magic;
  std::atomic<std::uint32_t> words[1];  // one for each rank

  static std::size_t bytes(int ranks) {
    return sizeof(std::uint64_t) + static_cast<std::size_t>(ranks) * sizeof(std::uint32_t);
  }
};

std::string RankEnding::describe() const {
  if (signal != 0) return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
  return fmt::format("exited with code {}", code);
}

JobBoard::JobBoard(Descriptor file, Page* page, int ranks)
    : file_(std::move(file)), page_(page), ranks_(ranks) {}

JobBoard::~JobBoard() { munmap(page_, Page::bytes(ranks_)); }

Result<std::unique_ptr<JobBoard>> JobBoard::make(int ranks) {
  Descriptor file(memfd_create("tutti-job-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::size_t bytes = Page::bytes(ranks);
  if (!file.open() || ftruncate(file.number(), static_cast<off_t>(bytes)) != 0)
    return failure("cannot make the job's board");
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) return failure("cannot map the job's board");
  // Kernels before 5.1 do not know how to forbid writing to others; the size is sealed anyway.
  constexpr int kFutureWrite = 0x0010;
  if (fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | kFutureWrite) != 0)
    fcntl(file.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  auto* page = static_cast<Page*>(memory);
  page->magic = kMagic;
  return std::unique_ptr<JobBoard>(new JobBoard(std::move(file), page, ranks));
}

Result<std::unique_ptr<JobBoard>> JobBoard::open(const std::string& path, int ranks) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file.open() || fstat(file.number(), &facts) != 0) return failure(path.c_str());
  const std::size_t bytes = Page::bytes(ranks);
  // A file that could still shrink would kill who reads it.
  const int seals = fcntl(file.number(), F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!sealed || static_cast<std::size_t>(facts.st_size) < bytes)
    return Status(StatusCode::corrupt_data,
                  fmt::format("{} is not the board of a job of {} ranks", path, ranks));
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) return failure(path.c_str());
  auto* page = static_cast<Page*>(memory);
  std::unique_ptr<JobBoard> board(new JobBoard(Descriptor(), page, ranks));
  if (page->magic != kMagic)
    return Status(StatusCode::corrupt_data, fmt::format("{} is not the board of a job", path));
  return board;
}

std::string JobBoard::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), file_.number());
}

void JobBoard::note(Rank rank, const RankEnding& ending) {
  page_->words[rank].store(word_of(ending), std::memory_order_release);
}

std::optional<RankEnding> JobBoard::ending(Rank rank) const {
  if (rank < 0 || rank >= ranks_) return std::nullopt;
  const std::uint32_t word = page_->words[rank].load(std::memory_order_acquire);
  if ((word & kEnded) == 0) return std::nullopt;
  return RankEnding{static_cast<int>(word & 0xff), static_cast<int>(word >> 8 & 0xff)};
}

}  // namespace tutti::base
