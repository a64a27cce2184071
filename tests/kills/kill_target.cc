// One rank of a job in which ranks are killed at random moments, or make a call that the others do
// not make: it calls collectives until an
// error comes, notes when and whom it names, goes on with those that are left, and notes how that
// went. campaign.py starts it, again and again, and judges what was noted.
//
// Uses the public interface only, as a program that wants to survive would.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using tutti::Communicator;
using tutti::Rank;
using tutti::ReduceOp;
using tutti::Result;
using tutti::Status;

constexpr int kRanksMax = 16;
constexpr float kUntouched = -77;
// Elements: the largest call, one more of who differs, and one behind it that must stay untouched.
constexpr std::size_t kBlockMax = 300'002;

// What campaign.py reads, field by field.
struct Note {
  std::int64_t died_ns;    // written by the victim, just before
  std::int64_t error_ns;   // the first error was returned
  std::int64_t shrunk_ns;  // a collective of the survivors was right
  std::int32_t code;       // of the first error
  std::int32_t culprit;
  std::int32_t survivors;     // ranks of the last communicator
  std::int32_t right;         // 1: its result was right
  std::int32_t files_before;  // open descriptors, at first and at last
  std::int32_t files_after;
  std::int32_t finished;
  std::int32_t calls;
  std::int32_t touched;  // elements of memory that others have written after an error
  std::int32_t process;
  char text[160];
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  int count = -1;  // of which one is the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 2;
}

std::uint64_t mixed(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15 + i;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct Options {
  std::string kind;
  std::uint64_t seed = 1;
  Rank first = 0;   // who dies first
  Rank second = 0;  // who dies in shrink
  int after_us = 0;
  int second_after_us = 0;
};

// As a debugger or a full disk would; somebody else wakes it.
void stop_later(Note& note, int after_us) {
  std::thread([&note, after_us] {
    std::this_thread::sleep_for(std::chrono::microseconds(after_us));
    note.died_ns = now_ns();
    kill(getpid(), SIGSTOP);
  }).detach();
}

// kill -9 from a thread of its own, so that it strikes at any instruction.
void die_later(Note& note, int after_us) {
  std::thread([&note, after_us] {
    std::this_thread::sleep_for(std::chrono::microseconds(after_us));
    note.died_ns = now_ns();
    kill(getpid(), SIGKILL);
  }).detach();
}

class Target {
 public:
  Target(const Options& options, Rank rank, std::size_t ranks, Note* notes)
      : options_(options),
        buffer_count_(kBlockMax * ranks),
        rank_(rank),
        notes_(notes),
        mine_(notes[rank]) {}

  void run() {
    if (shares_plain_memory()) make_shared();  // which keeps files open
    tutti::deallocate(tutti::allocate(1));     // as does small memory, which schedules need, too
    mine_.files_before = open_descriptors();
    mine_.process = getpid();
    if (options_.kind == "startup") arm(options_.first, options_.after_us);
    Result<Communicator> joined = Communicator::from_environment();
    if (joined.ok()) {
      Communicator comm = *std::move(joined);
      // The first call makes the buffers and the connections, which takes long.
      const bool began = options_.kind != "stopped" || reduce_shared(comm).ok();
      if (began && options_.kind != "startup" && options_.kind != "mismatch")
        arm(options_.first, options_.after_us);
      note_error(call_until_error(comm));
      if (options_.kind == "stopped") reuse_memory(comm.size());
      if (options_.kind != "abort" && options_.kind != "mismatch" && options_.kind != "stopped")
        go_on(comm);
    } else {
      note_error(joined.status());
    }
    for (float*& memory : shared_)
      shares_plain_memory() ? std::free(std::exchange(memory, nullptr))
                            : tutti::deallocate(std::exchange(memory, nullptr));
    mine_.files_after = open_descriptors();
    mine_.finished = 1;
  }

 private:
  void arm(Rank victim, int after_us) {
    if (rank_ != victim) return;
    if (options_.kind == "stopped")
      stop_later(mine_, after_us);
    else
      die_later(mine_, after_us);
  }

  // Memory that was the call's is the program's again; the rank that stood still wakes up.
  void reuse_memory(int ranks) {
    if (rank_ == options_.first) return;
    const std::size_t count = buffer_count_;
    for (float* memory : shared_)
      if (memory != nullptr) std::fill_n(memory, count, kUntouched);
    if (rank_ == (options_.first + 1) % ranks) wake_up(notes_[options_.first]);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    for (const float* memory : shared_)
      if (memory != nullptr)
        mine_.touched += static_cast<std::int32_t>(
            count - static_cast<std::size_t>(std::count(memory, memory + count, kUntouched)));
  }

  // More than once: where this rank's first call took too long, the other may stop only now.
  static void wake_up(Note& stopped) {
    const std::atomic_ref<std::int32_t> finished(stopped.finished);
    for (int turn = 0; turn < 500 && finished.load() == 0; ++turn) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the others fill theirs, too
      kill(stopped.process, SIGCONT);
    }
  }

  void note_error(const Status& status) {
    mine_.error_ns = now_ns();
    mine_.code = static_cast<std::int32_t>(status.code());
    mine_.culprit = status.culprit();
    std::snprintf(mine_.text, sizeof(mine_.text), "%s", status.to_string().c_str());
  }

  Status call_until_error(Communicator& comm) {
    std::jthread aborter;
    if (options_.kind == "abort" && rank_ == (options_.first + 1) % comm.size())
      aborter = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(options_.second_after_us));
        comm.abort();
      });
    Status status;
    for (std::uint64_t i = 0; status.ok(); ++i) {
      if (options_.kind == "stopped")
        status = reduce_shared(comm);
      else
        status = options_.kind == "split" ? split_once(comm, i) : call_once(comm, i);
      ++mine_.calls;
    }
    return status;
  }

  Status reduce_shared(Communicator& comm) {
    float* in = buffer(~0ULL, 0, 0);
    return comm.all_reduce(in, buffer(~0ULL, 1, 0), buffer_count_, tutti::DataType::float32,
                           ReduceOp::sum);
  }

  Status split_once(Communicator& comm, std::uint64_t i) {
    const Rank color = static_cast<Rank>(mixed(options_.seed, i) >> comm.rank() & 1);
    Result<Communicator> part = comm.split(color, comm.rank());
    if (!part.ok()) return part.status();
    // What the part's failure says is told in the part's ranks; the whole tells its own.
    static_cast<void>(part->barrier());
    return comm.barrier();
  }

  // Any collective, of any size, on plain memory or on memory that peers can touch.
  Status call_once(Communicator& comm, std::uint64_t i) {
    const std::uint64_t dice = mixed(options_.seed, i);
    const std::size_t sizes[] = {1, 300, 20'000, 300'000};
    std::size_t count = sizes[dice >> 8 & 3];
    const auto ranks = static_cast<std::size_t>(comm.size());
    Rank root = static_cast<Rank>((dice >> 16) % ranks);
    std::uint64_t which = dice % 11;
    float* in = buffer(dice, 0, count * ranks);
    float* out = buffer(dice, 1, count * ranks);
    auto type = tutti::DataType::float32;
    auto op = ReduceOp::sum;
    const bool differs =
        options_.kind == "mismatch" && i == static_cast<std::uint64_t>(options_.after_us) % 20;
    if (differs && (which == 8 || which == 10)) which = 0;  // one that all make, and with data
    if (differs && rank_ == options_.first) {
      switch (options_.second_after_us % 5) {
        case 0:
          count += 1;
          break;
        case 1:
          type = tutti::DataType::int32;
          break;
        case 2:
          op = ReduceOp::prod;
          root = (root + 1) % comm.size();
          if (which == 1 || which == 7 || which == 9) which = 2;
          break;
        case 3:
          which = which == 1 ? 7 : 1;
          break;
        default:
          if (const Status status = comm.barrier(); !status.ok()) return status;
      }
    }
    if (!differs) return call(comm, which, in, out, count, type, op, root);
    std::fill_n(out, (count + 1) * ranks, kUntouched);
    const Status status = call(comm, which, in, out, count, type, op, root);
    const auto untouched = std::count(out, out + (count + 1) * ranks, kUntouched);
    mine_.touched = static_cast<std::int32_t>((count + 1) * ranks) - static_cast<int>(untouched);
    return status;
  }

  Status call(Communicator& comm, std::uint64_t which, const float* in, float* out,
              std::size_t count, tutti::DataType type, ReduceOp op, Rank root) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    switch (which) {
      case 0:
        return comm.all_reduce(in, out, count, type, op);
      case 1:
        return comm.all_gather(in, out, count, type);
      case 2:
        return comm.reduce_scatter(in, out, count, type, op);
      case 3:
        return comm.broadcast(in, out, count, type, root);
      case 4:
        return comm.reduce(in, out, count, type, op, root);
      case 5:
        return comm.gather(in, out, count, type, root);
      case 6:
        return comm.scatter(in, out, count, type, root);
      case 7:
        return comm.all_to_all(in, out, count, type);
      case 8:
        return comm.send_recv(in, (comm.rank() + 1) % comm.size(), out,
                              (comm.rank() + comm.size() - 1) % comm.size(), count, type);
      case 9:
        return comm.all_gather_v(in, out, {counts(ranks, count)}, type);
      default:
        return comm.barrier();
    }
  }

  std::span<const std::size_t> counts(std::size_t ranks, std::size_t most) {
    counts_.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) counts_[r] = most / (r + 1);
    return counts_;
  }

  float* buffer(std::uint64_t dice, std::size_t which, std::size_t count) {
    if (owned_.empty())
      for (int i = 0; i < 2; ++i) owned_.emplace_back(buffer_count_);
    make_shared();
    static_cast<void>(count);
    return (dice >> 20 & 1) != 0 ? shared_[which] : owned_[which].data();
  }

  static bool shares_plain_memory() {
    const char* asked = std::getenv("TUTTI_SHARE_HEAP");
    return asked != nullptr && std::string(asked) == "1";
  }

  // Memory that peers can touch, of one kind or the other.
  void make_shared() {
    const std::size_t bytes = buffer_count_ * sizeof(float);
    for (float*& memory : shared_) {
      if (memory != nullptr) continue;
      void* made = shares_plain_memory() ? std::malloc(bytes) : tutti::allocate(bytes);
      if (shares_plain_memory()) static_cast<void>(tutti::register_memory(made, bytes));
      memory = static_cast<float*>(made);
    }
  }

  // Shrinks until the ranks that are left have done a collective and it was right.
  void go_on(Communicator& comm) {
    if (options_.kind == "shrink") arm(options_.second, options_.second_after_us);
    Communicator current = std::move(comm);
    while (true) {
      Result<Communicator> rest = current.shrink();
      if (!rest.ok()) {
        std::snprintf(mine_.text, sizeof(mine_.text), "shrink: %s",
                      rest.status().to_string().c_str());
        break;
      }
      current = *std::move(rest);
      mine_.survivors = current.size();
      std::int64_t sum = std::int64_t{1} << rank_;
      const bool done = current.all_reduce(std::span(&sum, 1), ReduceOp::sum).ok();
      if (done) {
        mine_.right = (sum >> rank_ & 1) == 1 &&
                      __builtin_popcountll(static_cast<std::uint64_t>(sum)) == current.size();
        mine_.shrunk_ns = now_ns();
      }
      // Somebody may have died meanwhile, and some have the result and others not. All agree, also
      // those without it, so that all leave or all shrink: ranks that live make the same calls.
      const auto agreed = current.agree(done ? 1 : 0);
      if (agreed.ok() && agreed->lost.empty() && agreed->flags == 1) break;
    }
  }

  const Options& options_;
  const std::size_t buffer_count_;
  Rank rank_;
  Note* notes_;
  Note& mine_;
  std::vector<std::size_t> counts_;
  std::vector<std::vector<float>> owned_;
  float* shared_[2] = {};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr, "kill_target FILE KIND SEED FIRST AFTER_US SECOND SECOND_AFTER_US\n");
    return 2;
  }
  const Options options{argv[2],
                        std::strtoull(argv[3], nullptr, 10),
                        std::atoi(argv[4]),
                        std::atoi(argv[6]),
                        std::atoi(argv[5]),
                        std::atoi(argv[7])};
  const char* rank = std::getenv("RANK");
  const char* size = std::getenv("WORLD_SIZE");
  const int file = open(argv[1], O_RDWR | O_CLOEXEC);
  void* memory =
      mmap(nullptr, sizeof(Note) * kRanksMax, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (rank == nullptr || size == nullptr || file < 0 || memory == MAP_FAILED) return 2;
  close(file);
  const auto ranks = static_cast<std::size_t>(std::atoi(size));
  Target(options, std::atoi(rank), ranks, static_cast<Note*>(memory)).run();
  return 0;
}
