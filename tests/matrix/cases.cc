// What each call of the matrix needs, and what it must leave behind.
#include "cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "perf/common/data.hpp"

namespace tutti::matrix {
namespace {

using perf::kReduced;
using perf::Pattern;

constexpr std::size_t kLarge = 40'009;
constexpr std::size_t kCounts[] = {0, 1, 7, 131, 2003, kLarge};
constexpr int kLargeEvery = 8;  // the rest would take longer than all others together
constexpr std::size_t kGuardBytes = 64;
constexpr auto kUntouched = std::byte{0xa5};

constexpr std::string_view kNames[] = {
    "all_reduce",   "reduce_scatter", "reduce",  "reduce_scatter_v", "all_gather",
    "broadcast",    "gather",         "scatter", "all_to_all",       "send_recv",
    "all_gather_v", "all_to_all_v",   "barrier"};

std::size_t idx(int value) { return static_cast<std::size_t>(value); }

bool reduces(Call call) { return call <= Call::reduce_scatter_v; }

bool has_in_place_form(Call call) {
  return call != Call::all_to_all && call != Call::send_recv && call != Call::all_to_all_v &&
         call != Call::barrier;
}

// Blocks of different sizes, some of them empty.
std::vector<std::size_t> uneven(std::size_t count, int ranks, int shift) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < ranks; ++rank) counts.push_back(count * idx((rank + shift) % 3) / 2);
  return counts;
}

std::size_t before(const std::vector<std::size_t>& counts, Rank rank) {
  std::size_t sum = 0;
  for (Rank earlier = 0; earlier < rank; ++earlier) sum += counts[idx(earlier)];
  return sum;
}

// `count` elements of the output, from `at` on, that must be those of `source` from `first` on.
struct Piece {
  std::size_t at;
  Rank source;
  std::size_t first;
  std::size_t count;
};

void keep_last(const void*, const void* right, void* result, std::size_t count, DataType type) {
  std::memcpy(result, right, count * size_of(type));
}

// One call on one rank: fill, make, check.
class Trial {
 public:
  Trial(Communicator& communicator, const Case& what, Buffers& buffers)
      : comm_(communicator),
        case_(what),
        n_(communicator.size()),
        me_(communicator.rank()),
        root_(what.number % n_),
        element_(size_of(what.type)),
        input_(buffers.input(what.number)),
        output_(buffers.output(what.number)),
        bytes_(buffers.bytes()) {}

  // Elements that the rank reads and writes; where it reads and writes in place.
  void prepare(const Pattern& pattern) {
    std::memset(output_, static_cast<int>(kUntouched), std::min(bytes_, reach() + kGuardBytes));
    lay_out();
    if (input_count_ > 0) pattern.fill(input_, me_, 0, input_count_);
  }

  Status make(const Reduction& op) {
    const std::size_t c = case_.count;
    const DataType type = case_.type;
    switch (case_.call) {
      case Call::all_reduce:
        return comm_.all_reduce(input_, output_, c, type, op);
      case Call::reduce_scatter:
        return comm_.reduce_scatter(input_, output_, c, type, op);
      case Call::reduce:
        return comm_.reduce(input_, output_, c, type, op, root_);
      case Call::reduce_scatter_v:
        return comm_.reduce_scatter_v(input_, output_, {counts_}, type, op);
      case Call::all_gather:
        return comm_.all_gather(input_, output_, c, type);
      case Call::broadcast:
        return comm_.broadcast(input_, output_, c, type, root_);
      case Call::gather:
        return comm_.gather(input_, output_, c, type, root_);
      case Call::scatter:
        return comm_.scatter(input_, output_, c, type, root_);
      case Call::all_to_all:
        return comm_.all_to_all(input_, output_, c, type);
      case Call::send_recv:
        return comm_.send_recv(input_, (me_ + 1) % n_, output_, (me_ + n_ - 1) % n_, c, type);
      case Call::all_gather_v:
        return comm_.all_gather_v(input_, output_, {counts_}, type);
      case Call::all_to_all_v:
        return comm_.all_to_all_v(input_, {uneven(c, n_, me_)}, output_, {counts_}, type);
      case Call::barrier:
        return comm_.barrier();
    }
    return Status();
  }

  // What is wrong with the output; elements beyond it must be as they were.
  std::string judge(const Pattern& pattern) const {
    std::size_t written = 0;
    for (const Piece& piece : pieces_) {
      const std::byte* got = output_ + piece.at * element_;
      const perf::Mismatch wrong = pattern.compare(got, piece.source, piece.first, piece.count);
      if (wrong.count > 0)
        return fmt::format("{} of {} elements are wrong, the first is {}", wrong.count, piece.count,
                           piece.at + wrong.first);
      written = std::max(written, piece.at + piece.count);
    }
    if (case_.in_place) return {};
    for (std::size_t i = 0; i < kGuardBytes; ++i)
      if (output_[written * element_ + i] != kUntouched) return "wrote beyond its output";
    return {};
  }

  const std::vector<Piece>& pieces() const { return pieces_; }
  const std::byte* output() const { return output_; }

 private:
  std::size_t reach() const { return idx(n_) * case_.count * element_; }

  // In place the output buffer holds both; `in` and `out` are where a rank's parts begin.
  void place(std::size_t in, std::size_t out) {
    if (!case_.in_place) return;
    input_ = output_ + in * element_;
    output_ += out * element_;
  }

  void lay_out() {
    if (reduces(case_.call))
      lay_out_reduction();
    else if (case_.call == Call::all_gather_v || case_.call == Call::all_to_all_v)
      lay_out_varied();
    else
      lay_out_movement();
  }

  void lay_out_reduction() {
    const std::size_t c = case_.count;
    const Rank source = case_.custom ? n_ - 1 : kReduced;
    counts_.assign(idx(n_), c);
    if (case_.call == Call::reduce_scatter_v) counts_ = uneven(c, n_, 1);
    const bool scatters =
        case_.call == Call::reduce_scatter || case_.call == Call::reduce_scatter_v;
    const std::size_t first = scatters ? before(counts_, me_) : 0;
    const std::size_t mine = scatters ? counts_[idx(me_)] : c;
    input_count_ = scatters ? before(counts_, n_) : c;
    place(0, first);
    if (case_.call != Call::reduce || me_ == root_) pieces_ = {{0, source, first, mine}};
  }

  void lay_out_varied() {
    const bool gathers = case_.call == Call::all_gather_v;
    // all_to_all_v: rank a sends b as many as uneven(count, n, a)[b] says.
    for (Rank peer = 0; peer < n_; ++peer)
      counts_.push_back(uneven(case_.count, n_, gathers ? 1 : peer)[idx(gathers ? peer : me_)]);
    const auto sent = uneven(case_.count, n_, me_);
    input_count_ = gathers ? counts_[idx(me_)] : before(sent, n_);
    place(before(counts_, me_), 0);
    for (Rank peer = 0; peer < n_; ++peer) {
      const std::size_t first = gathers ? 0 : before(uneven(case_.count, n_, peer), me_);
      pieces_.push_back({before(counts_, peer), peer, first, counts_[idx(peer)]});
    }
  }

  void lay_out_movement() {
    const std::size_t c = case_.count;
    const std::size_t mine = idx(me_) * c;
    const bool is_root = me_ == root_;
    input_count_ = c;
    switch (case_.call) {
      case Call::all_gather:
        place(mine, 0);
        return receive_from_all(0);
      case Call::gather:
        if (is_root) place(mine, 0);
        if (is_root) receive_from_all(0);
        return;
      case Call::all_to_all:
        input_count_ = idx(n_) * c;
        return receive_from_all(mine);
      case Call::broadcast:
        input_count_ = is_root ? c : 0;
        place(0, 0);
        pieces_ = {{0, root_, 0, c}};
        return;
      case Call::scatter:
        input_count_ = is_root ? idx(n_) * c : 0;
        if (is_root) place(0, mine);
        pieces_ = {{0, root_, mine, c}};
        return;
      case Call::send_recv:
        pieces_ = {{0, (me_ + n_ - 1) % n_, 0, c}};
        return;
      default:
        input_count_ = 0;
    }
  }

  void receive_from_all(std::size_t first) {
    for (Rank peer = 0; peer < n_; ++peer)
      pieces_.push_back({idx(peer) * case_.count, peer, first, case_.count});
  }

  Communicator& comm_;
  const Case& case_;
  const int n_;
  const Rank me_;
  const Rank root_;
  const std::size_t element_;
  std::byte* input_;
  std::byte* output_;
  const std::size_t bytes_;
  std::size_t input_count_ = 0;
  std::vector<std::size_t> counts_;
  std::vector<Piece> pieces_;
};

void add_case(std::vector<Case>& cases, Case what) {
  what.number = static_cast<int>(cases.size());
  cases.push_back(what);
}

void add_operations(std::vector<Case>& cases, Case what) {
  if (!reduces(what.call)) return add_case(cases, what);
  for (const ReduceOp op : kAllReduceOps) {
    what.operation = op;
    add_case(cases, what);
  }
  what.operation = perf::mulsum();
  add_case(cases, what);
  what.operation = {};
  what.custom = true;
  add_case(cases, what);
}

// Finite floats of any mantissa: exponents are near 1, so that sums round and products do not
// vanish.
template <typename Bits>
void fill_rough(std::byte* memory, std::size_t count, std::uint64_t seed, Bits one, Bits mask) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t random = (seed + i) * 0x9e3779b97f4a7c15ULL;
    random = (random ^ (random >> 29)) * 0xbf58476d1ce4e5b9ULL;
    random ^= random >> 32;
    const Bits bits = static_cast<Bits>(one ^ (static_cast<Bits>(random) & mask));
    std::memcpy(memory + i * sizeof(Bits), &bits, sizeof(Bits));
  }
}

}  // namespace

std::string Case::text() const {
  const std::string_view operation_name = custom ? "last" : perf::to_string(operation);
  return fmt::format("{} of {} x {}{}{}{}", kNames[static_cast<std::size_t>(call)], count,
                     to_string(type), reduces(call) ? ", " : "",
                     reduces(call) ? operation_name : "", in_place ? ", in place" : "");
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_case(cases, {});
  for (std::size_t call = 0; call < static_cast<std::size_t>(Call::barrier); ++call)
    for (const DataType type : kAllDataTypes)
      for (const std::size_t count : kCounts)
        for (const bool in_place : {false, true}) {
          const Case what{static_cast<Call>(call), type, {}, false, count, in_place, 0};
          if (in_place && !has_in_place_form(what.call)) continue;
          add_operations(cases, what);
        }
  // Numbers are given before some are left out, so that what is left is of all kinds.
  std::erase_if(cases, [](const Case& what) {
    return what.count == kLarge && what.number % kLargeEvery != 0;
  });
  return cases;
}

Buffers::Buffers(int ranks)
    : bytes_((idx(ranks) * kLarge * sizeof(double) + 2 * kGuardBytes) / 64 * 64 + 64),
      plain_(2 * bytes_ + 64) {
  memory_[0] = static_cast<std::byte*>(allocate(bytes_));
  memory_[1] = static_cast<std::byte*>(allocate(bytes_));
  auto* base = plain_.data();
  base += 64 - reinterpret_cast<std::uintptr_t>(base) % 64;
  memory_[2] = base;
  memory_[3] = base + bytes_;
}

Buffers::~Buffers() {
  deallocate(memory_[0]);
  deallocate(memory_[1]);
}

std::string run_case(Communicator& communicator, const Case& what, Buffers& buffers) {
  const auto seed = static_cast<std::uint64_t>(what.number) + 1;
  const Pattern pattern =
      reduces(what.call) && !what.custom
          ? Pattern::reduced(what.type, what.operation, communicator.size(), seed)
          : Pattern::moved(what.type, seed);
  Trial trial(communicator, what, buffers);
  trial.prepare(pattern);
  const Status status =
      trial.make(what.custom ? Reduction::custom("last", keep_last)
                             : perf::reduction(what.operation, what.type, communicator.rank()));
  return status.ok() ? trial.judge(pattern) : status.to_string();
}

std::string run_rough(Communicator& communicator, const Case& what, Buffers& buffers,
                      std::uint64_t& digest) {
  // A reduction whose result all ranks get, so that each of them has the same digest.
  if (what.call != Call::all_reduce || !is_floating(what.type) || what.custom) return {};
  const auto seed = static_cast<std::uint64_t>(what.number) * 1'000'003 +
                    static_cast<std::uint64_t>(communicator.rank()) * 7'919;
  std::byte* data = buffers.output(what.number);
  switch (what.type) {
    case DataType::float64:
      fill_rough<std::uint64_t>(data, what.count, seed, 0x3fe0000000000000, 0x801fffffffffffff);
      break;
    case DataType::float32:
      fill_rough<std::uint32_t>(data, what.count, seed, 0x3f000000, 0x80ffffff);
      break;
    case DataType::bfloat16:
      fill_rough<std::uint16_t>(data, what.count, seed, 0x3f00, 0x80ff);
      break;
    case DataType::float16:
      fill_rough<std::uint16_t>(data, what.count, seed, 0x3800, 0x87ff);
      break;
    default:
      fill_rough<std::uint8_t>(data, what.count, seed, 0x30, 0x8f);
  }
  const Status status =
      communicator.all_reduce(data, data, what.count, what.type,
                              perf::reduction(what.operation, what.type, communicator.rank()));
  if (!status.ok()) return status.to_string();
  for (std::size_t i = 0; i < what.count * size_of(what.type); ++i)
    digest = (digest ^ std::to_integer<std::uint64_t>(data[i])) * 0x100000001b3ULL;
  return {};
}

}  // namespace tutti::matrix
